"""`paperformer tokenizer train|show|compare`."""

import contextlib
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from inspect import signature
from pathlib import Path
from typing import Any, get_args

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerFast

from paperformer import tokenization
from paperformer.cli import main
from paperformer.commands import tokenizers as commands
from paperformer.tokenization import comparison
from paperformer.training.data.text import chunks


@pytest.fixture
def output_of(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command; returns what it prints."""

    def run(*arguments: object) -> str:
        main(["tokenizer", *map(str, arguments)])
        return capsys.readouterr().out

    return run


@pytest.fixture
def text_file(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines to a file of this name."""

    def write(name: str, *content: str) -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in content), "utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tokenizer such as BERT's."""
    tokens = ["[UNK]", "the", "cat", "sat", "##s", "un", "##seen", "."]
    tokenizer = Tokenizer(models.WordPiece({token: id_ for id_, token in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    folder = tmp_path_factory.mktemp("foreign") / "bert"
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)
    return folder


# train


def test_train(
    text_file: Callable[..., Path], tmp_path: Path, output_of: Callable[..., str], refused: Callable[..., str]
) -> None:
    en, de, out = text_file("en", *["a dog"] * 5), text_file("de", *["ein Hund"] * 5), tmp_path / "new" / "out"
    command = ["train", en, de, out, "--vocab_size", "271"]
    assert "vocab_size is 3, and must be at least 260" in refused("tokenizer", *command[:4], "--vocab_size", "3")
    assert not out.exists()
    assert output_of(*command) == f"271 tokens: {out}\n"
    tokenizer = AutoTokenizer.from_pretrained(out)
    assert tokenizer("a dog").input_ids[-1] == tokenizer.eos_token_id
    assert {"Ġdog", "ĠHund"} <= set(tokenizer.get_vocab())
    assert "exists; give a new folder" in refused("tokenizer", *command)
    assert [path.name for path in tmp_path.rglob("*.partial")] == []


def test_where_nothing_can_be_written_nothing_is_trained(
    text_file: Callable[..., Path], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenization, "train_tokenizer", None)
    file = text_file("file", "a dog")
    assert "cannot write" in refused("tokenizer", "train", file, file / "inside")


def test_options_may_stand_anywhere(
    text_file: Callable[..., Path], tmp_path: Path, output_of: Callable[..., str]
) -> None:
    en, de = text_file("en", *["a dog"] * 5), text_file("de", *["ein Hund"] * 5)
    out = tmp_path / "out"
    assert output_of("train", "--vocab_size", "265", en, de, out, "--append_eos", "false") == f"265 tokens: {out}\n"
    assert AutoTokenizer.from_pretrained(out)("").input_ids == []


def test_what_train_passes_on(monkeypatch: pytest.MonkeyPatch, text_file: Callable[..., Path], tmp_path: Path) -> None:
    calls: list[dict[str, Any]] = []

    def record(texts: Iterator[str], **options: Any) -> PreTrainedTokenizerFast:
        calls.append(options | {"texts": list(texts)})
        return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel({"a": 0}, "a")))

    monkeypatch.setattr(tokenization, "train_tokenizer", record)
    monkeypatch.setattr(chunks, "ROWS_A_CHUNK", 2)
    first, second = text_file("first", "a", "", "b\r"), tmp_path / "second.gz"
    second.write_bytes(gzip.compress(b"c\nd"))
    main(["tokenizer", "train", str(first), str(second), str(tmp_path / "1")])
    given = {
        "algorithm": "unigram",
        "vocab_size": 7,
        "append_eos": False,
        "min_frequency": 3,
        "split_digits": True,
        "normalization": "NFKC",
        "user_symbols": ["<2de>", "<2fr>"],
        "mask_token": True,
        "sentinels": 4,
    }
    words = {name: str(value).lower() for name, value in given.items()}
    words |= {"normalization": "NFKC", "user_symbols": "[<2de>,<2fr>]"}
    options = [word for name, value in words.items() for word in (f"--{name}", value)]
    main(["tokenizer", "train", str(first), str(tmp_path / "2"), *options])
    texts = ["a", "", "b"]
    assert calls[1] == given | {"texts": texts}
    parameters = signature(commands.train_on_files).parameters
    defaults = {name: parameters[name].default for name in given} | {"user_symbols": []}
    assert calls[0] == defaults | {"texts": [*texts, "c", "d"]}


def test_training_text_is_streamed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: Callable[..., str]
) -> None:
    """A bad line is met when the training comes to it: the file was not read before."""
    file = tmp_path / "file"
    file.write_bytes(b"fine\n" * 300_000 + b"\xff\n")
    seen: list[str] = []

    def read_all(texts: Iterator[str], **options: Any) -> None:
        seen.append(next(texts))
        list(texts)

    monkeypatch.setattr(tokenization, "train_tokenizer", read_all)
    assert "file, line 300001: byte 0xff" in refused("tokenizer", "train", file, tmp_path / "out")
    assert seen == ["fine"]


@pytest.mark.parametrize("option", ["algorithm", "normalization"])
def test_the_choices_are_those_of_the_trainer(option: str) -> None:
    functions = (commands.train_on_files, tokenization.train_tokenizer)
    ours, theirs = (get_args(signature(function).parameters[option].annotation) for function in functions)
    assert ours
    assert ours == theirs


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "needs at least one non-empty text"),
        (b"fine\n\xff\n", "file, line 2: byte 0xff at byte 1 of the line is not UTF-8"),
        (b"a\0b\n", "file, line 1: byte 2 of the line is NUL"),
    ],
)
def test_text_that_cannot_be_trained_on(
    content: bytes, message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert message in refused("tokenizer", "train", file, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [file]


def test_a_small_vocabulary_is_said_in_one_line(
    text_file: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["tokenizer", "train", str(text_file("file", "a dog", "a dog")), str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert said.startswith("note: the vocabulary has 26")
    assert said.count("\n") == 1


# show


def test_show(seq2seq: Any, output_of: Callable[..., str]) -> None:
    shown = output_of("show", seq2seq.folder)
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in shown.splitlines())
    assert rows["tokenizer"] == str(seq2seq.folder)
    assert rows["model"] == "byte-level BPE"
    assert rows["vocabulary"] == f"{len(seq2seq.tokenizer)} tokens"
    assert rows["special tokens"] == "<pad> 0, <s> 1, </s> 2, <unk> 3"
    assert rows["single bytes"] == "256"
    assert rows["round trip"] == "gives back all 14 kinds of text that were tried"
    assert rows["longest tokens"].count(" ") == 9


def test_show_a_tokenizer_that_alters_texts(foreign: Path, output_of: Callable[..., str]) -> None:
    shown = output_of("show", foreign)
    assert "\nmodel              WordPiece\n" in shown
    assert "alters 14 of 14 kinds of text" in shown
    assert re.search(r"\n  spaces at the ends +␣one␣ -> nothing\n", shown)


def test_many_special_tokens_are_not_all_listed(seq2seq: Any, tmp_path: Path, output_of: Callable[..., str]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(seq2seq.folder)
    tokenizer.add_special_tokens({"additional_special_tokens": [f"<extra_id_{number}>" for number in range(100)]})
    tokenizer.save_pretrained(tmp_path)
    assert "<extra_id_7> " in (shown := output_of("show", tmp_path))
    assert ", and 92 more\n" in shown
    assert "<extra_id_8>" not in shown


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("The cats.", "the|cat|##s|."),
        ("the dog\n", "the|[UNK]"),
    ],
)
def test_a_split_without_colours(foreign: Path, text: str, split: str, output_of: Callable[..., str]) -> None:
    shown = output_of("show", foreign, "--text", text)
    assert shown.endswith(f"\n\n{split.count('|') + 1} tokens\n{split}\n")


def test_a_split_shows_bytes_and_the_end(seq2seq: Any, output_of: Callable[..., str]) -> None:
    assert output_of("show", seq2seq.folder, "--text", "漢").endswith("\n␣|\\xe6|\\xbc|\\xa2|</s>\n")
    assert output_of("show", seq2seq.folder, "--text", "").endswith("\n1 tokens\n</s>\n")


@pytest.mark.parametrize(
    ("environment", "is_coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colours_in_a_terminal(
    environment: dict[str, str],
    is_coloured: bool,
    foreign: Path,
    output_of: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in ({"TERM": "xterm-256color"} | environment).items():
        monkeypatch.setenv(name, value)
    if "NO_COLOR" not in environment:
        monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = io.TextIOWrapper(io.BytesIO(), "utf-8")
    monkeypatch.setattr(terminal, "isatty", lambda: True, raising=False)
    with contextlib.redirect_stdout(terminal):
        output_of("show", foreign, "--text", "the cats")
    terminal.seek(0)
    line = terminal.read().splitlines()[-1]
    assert ("\x1b[" in line) == is_coloured
    if not is_coloured:
        assert line == "the|cat|##s"
        return
    tokens = re.findall(r"\x1b\[30;48;5;(\d+)m([^\x1b]*)\x1b\[0m", line)
    assert [token for _, token in tokens] == ["the", "cat", "##s"]
    colours = [colour for colour, _ in tokens]
    assert colours[0] == colours[2] != colours[1]


def test_text_of_the_command_line_that_is_not_utf8(seq2seq: Any, refused: Callable[..., str]) -> None:
    assert (
        refused("tokenizer", "show", seq2seq.folder, "--text", "a\udcff") == "--text is not UTF-8; convert it to UTF-8"
    )


# compare


def test_compare_as_json(
    foreign: Path, seq2seq: Any, text_file: Callable[..., Path], output_of: Callable[..., str]
) -> None:
    file = text_file("file", "", "The cats sat.", "the cats", "unseen dog")
    compared = json.loads(output_of("compare", foreign, seq2seq.folder, "--files", file, "--json"))
    assert compared["files"] == [str(file)]
    assert compared["first_sentence"] == "The cats sat."
    first, second = compared["tokenizers"]
    assert first.pop("seconds") > 0
    assert first.pop("sentences_per_second") > 0
    assert first == {
        "tokenizer": str(foreign),
        "vocabulary": 8,
        "sentences": 3,
        "words": 7,
        "characters": 31,
        "bytes": 31,
        "tokens": 11,
        "unknown": 1,
        "whole_words": 2,
        "round_trips": 1,
        "tokens_seen": 8,
        "fertility": 11 / 7,
        "tokens_per_sentence": 11 / 3,
        "bytes_per_token": 31 / 11,
        "characters_per_token": 31 / 11,
        "unknown_rate": 1 / 11,
        "whole_word_rate": 2 / 7,
        "round_trip_rate": 1 / 3,
        "longest_tokens": ["##seen", "the", "cat", "sat", "un", "##s", "."],
        "first_sentence": ["the", "cat", "##s", "sat", "."],
    }
    assert second["tokenizer"] == str(seq2seq.folder)
    assert (second["words"], second["bytes"], second["round_trip_rate"]) == (7, 31, 1)


def test_compare_as_a_table(
    foreign: Path, seq2seq: Any, text_file: Callable[..., Path], output_of: Callable[..., str]
) -> None:
    file = text_file("file", "The cats sat.", "the cats", "unseen dog")
    shown = output_of("compare", foreign, seq2seq.folder, "--files", file).splitlines()
    assert shown[0] == "3 sentences, 7 words, 31 bytes"
    table = shown[2 : 3 + len(commands.MEASURES) + 1]
    assert table[0].split() == [str(foreign), str(seq2seq.folder)]
    assert len({len(line) for line in table}) == 1
    rows = {re.split(r"  +", line)[0]: re.split(r"  +", line)[1] for line in table[1:]}
    assert rows.pop("sentences a second")
    assert rows == {
        "vocabulary": "8",
        "tokens a word (fertility)": "1.57",
        "tokens a sentence": "3.7",
        "bytes a token": "2.82",
        "characters a token": "2.82",
        "unknown tokens": "9.09%",
        "words kept whole": "28.6%",
        "sentences that come back": "33.3%",
    }
    below = "\n".join(shown)
    assert "Words are what white space separates." in below
    assert re.search(rf"\nlongest tokens\n  {foreign} +##seen the cat sat un ##s \. *", below)
    assert re.search(rf"\nfirst sentence\n  {foreign} +the\|cat\|##s\|sat\|\.\n  {seq2seq.folder} +␣", below)


def test_compare_reads_standard_input_and_several_files(
    foreign: Path, text_file: Callable[..., Path], output_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tokens(*options: object) -> int:
        return json.loads(output_of("compare", foreign, "--json", *options))["tokenizers"][0]["tokens"]

    first, second = text_file("first", "the cats"), text_file("second", "the")
    assert tokens("--files", f"[{first},{second}]") == 4
    for options in ([], ["--files", "-"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cats\n")))
        assert tokens(*options) == 3


def test_compare_holds_one_chunk_at_a_time(
    foreign: Path, text_file: Callable[..., Path], output_of: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    measure = comparison.measure

    def watch(tokenizer: PreTrainedTokenizerFast, texts: list[str]) -> comparison.Measurement:
        sizes.append(len(texts))
        return measure(tokenizer, texts)

    monkeypatch.setattr(comparison, "measure", watch)
    monkeypatch.setattr(chunks, "ROWS_A_CHUNK", 3)
    file = text_file("file", *["the cats"] * 10)
    facts = json.loads(output_of("compare", foreign, "--json", "--files", file))["tokenizers"][0]
    assert sizes == [3, 3, 3, 1]
    assert (facts["sentences"], facts["tokens"]) == (10, 30)


def test_a_long_first_sentence_is_cut(
    foreign: Path, text_file: Callable[..., Path], output_of: Callable[..., str]
) -> None:
    compared = json.loads(output_of("compare", foreign, "--json", "--files", text_file("file", "the " * 1000)))
    assert len(compared["first_sentence"]) == commands.SENTENCE_SHOWN
    assert len(compared["tokenizers"][0]["first_sentence"]) == commands.SENTENCE_SHOWN // 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "file has no text; it must have a sentence at least"),
        (b" \n\n", "file has no text; it must have a sentence at least"),
        (b"fine\n\xff\n", "file, line 2: byte 0xff at byte 1 of the line is not UTF-8"),
        ("\u200b\n".encode(), "makes no token of "),  # the normaliser takes it away
    ],
)
def test_text_that_cannot_be_compared_on(
    content: bytes, message: str, foreign: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert message in refused("tokenizer", "compare", foreign, "--files", file)


# show and compare


def test_tokenizers_that_cannot_be_loaded(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("empty").mkdir()
    ByT5Tokenizer().save_pretrained("slow")
    damages = {"cut": "{", "lacking": "{}", "wrong": '{"added_tokens": [], "model": {"type": "X"}}'}
    for name, content in damages.items():
        Path(name).mkdir()
        Path(name, "tokenizer.json").write_text(content)
        Path(name, "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    expected = {
        "./nowhere": "there is no folder ./nowhere",
        "file": "file is a file; it must be a tokenizer's folder, or a name on the Hub",
        "empty": "empty is no tokenizer's folder: no tokenizer.json",
        "slow": "slow holds a ByT5Tokenizer; it must be a fast tokenizer (tokenizer.json)",
        **{name: f"{name} is no tokenizer that can be loaded: " for name in damages},
    }
    for name, message in expected.items():
        assert message in refused("tokenizer", "show", name)
        assert message in refused("tokenizer", "compare", name, "--files", "file")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "the following arguments are required: files, output (paperformer tokenizer train --help)"),
        (["train", "a"], "the following arguments are required: output"),
        (["train", "./nowhere", "out"], "nowhere cannot be read: No such file or directory"),
        (["train", "a", "out", "--algorithm", "bbpe"], "--algorithm is bbpe; it must be byte_bpe, bpe, unigram, "),
        (["train", "a", "out", "--vocab", "8"], "there is no option --vocab; did you mean --vocab_size?"),
        (["show"], "the following arguments are required: tokenizer"),
        (["compare", "--files", "x"], "the following arguments are required: tokenizers"),
    ],
)
def test_bad_command_lines(
    arguments: list[str], message: str, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in refused("tokenizer", *arguments)
