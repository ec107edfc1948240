"""What all algorithms have in common: saving, loading, repeating, progress, warnings, errors."""

import contextlib
import json
import os
import pty
import subprocess
import sys
import termios
import unicodedata
from pathlib import Path
from random import Random
from typing import get_args

import pytest

from paperformer.tokenization import train_tokenizer
from paperformer.tokenization.algorithms import AlgorithmName
from paperformer.tokenization.train import smallest_vocab_size

pytestmark = pytest.mark.filterwarnings("ignore:the vocabulary has")  # tiny texts have few pairs

ALGORITHMS = list(get_args(AlgorithmName))
TEXTS = [
    "the cat sat on the mat; the cats, too.",
    "the dog saw the cat, and the cats saw it",
    "on the 12th of May 2017, at 12:30",
    "die Katze saß auf der Matte, die Katzen auch.",
    "der Hund sah die Katze. Die Hunde!",
    "am 12. Mai 2017 um 12:30 Uhr",
] * 5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_reserved_tokens_have_fixed_ids(algorithm: str) -> None:
    tokenizer = train_tokenizer(
        TEXTS, 320, append_eos=True, algorithm=algorithm, mask_token=True, sentinels=2, user_symbols=["<2de>", "→"]
    )
    tokens = ["<pad>", "<s>", "</s>", "<unk>", "<mask>", "<extra_id_0>", "<extra_id_1>", "<2de>", "→"]
    assert tokenizer.convert_tokens_to_ids(tokens) == list(range(9))
    roles = (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id)
    assert roles == (0, 1, 2, 3)
    assert tokenizer.mask_token_id == 4
    assert sorted(tokenizer.all_special_ids) == list(range(7)), "a user symbol is not special"
    assert sorted(tokenizer.get_vocab().values()) == list(range(len(tokenizer)))


@pytest.mark.parametrize("algorithm", ["byte_bpe", "bpe", "unigram", "wordpiece"])
@pytest.mark.parametrize("vocab_size", [290, 310])
def test_vocabulary_size_is_exact(algorithm: str, vocab_size: int) -> None:
    words = [f"{a}{b}{c} {a}{b}{c}, {a}{b}{c}s" for a in "bdfgklm" for b in "aeiou" for c in "nprt"] * 2
    tokenizer = train_tokenizer(words, vocab_size, append_eos=True, algorithm=algorithm)
    assert len(tokenizer) == vocab_size


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("append_eos", [True, False])
def test_eos_padding_and_truncation(algorithm: str, append_eos: bool) -> None:
    tokenizer = train_tokenizer(TEXTS, 320, append_eos=append_eos, algorithm=algorithm, model_max_length=4)
    batch = tokenizer(["the", "the cat sat on the mat"], padding=True, truncation=True)
    assert set(batch) == {"input_ids", "attention_mask"}
    short, long = batch.input_ids
    assert len(short) == len(long) == 4
    if append_eos:
        assert long[-1] == 2
    else:
        assert 2 not in short + long
    unpadded = tokenizer("the").input_ids
    padding = [0] * (4 - len(unpadded))
    assert short == (unpadded + padding if append_eos else padding + unpadded)
    assert tokenizer("").input_ids == [2] * append_eos


LOAD_WITHOUT_PAPERFORMER = """if True:
    import json, sys
    sys.modules["paperformer"] = None  # from here on, importing it raises ImportError
    from transformers import AutoTokenizer
    texts = json.loads(sys.argv[1])
    for folder in sys.argv[2:]:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(texts).input_ids
        print(json.dumps({
            "ids": ids,
            "texts": tokenizer.batch_decode(ids, skip_special_tokens=True),
            "parallel": tokenizer(texts * 100).input_ids == ids * 100,
            "padded": tokenizer(texts, padding=True).input_ids,
            "keys": sorted(tokenizer(texts)),
            "model_max_length": tokenizer.model_max_length,
            "special": sorted(tokenizer.all_special_ids),
            "vocab": tokenizer.get_vocab(),
        }))
"""


@pytest.mark.proof
def test_autotokenizer_loads_them_without_paperformer(tmp_path: Path) -> None:
    tokenizers = {}
    for algorithm in ALGORITHMS:
        for append_eos in (True, False):
            folder = tmp_path / f"{algorithm}-{append_eos}"
            tokenizers[folder] = train_tokenizer(
                TEXTS,
                320,
                append_eos=append_eos,
                algorithm=algorithm,
                model_max_length=64,
                **({"user_symbols": ["<2de>"], "mask_token": True, "sentinels": 2} if append_eos else {}),
            )
            tokenizers[folder].save_pretrained(folder)
            assert {path.name for path in folder.iterdir()} == {"tokenizer.json", "tokenizer_config.json"}
            config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
            assert config["clean_up_tokenization_spaces"] is False

    texts = ["the cat", "  die<2de> Katze </s> <mask><extra_id_0> saß ", "", "👩‍👧 e\u0301 ▁\x10", "unbekannt"]
    result = subprocess.run(
        [sys.executable, "-I", "-c", LOAD_WITHOUT_PAPERFORMER, json.dumps(texts), *map(str, tokenizers)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,  # a question to the user would end in an error
        env=os.environ | {"TOKENIZERS_PARALLELISM": "true"},
    )
    for (folder, tokenizer), line in zip(tokenizers.items(), result.stdout.splitlines(), strict=True):
        loaded = json.loads(line)
        assert loaded["ids"] == tokenizer(texts).input_ids
        assert loaded["texts"] == tokenizer.batch_decode(loaded["ids"], skip_special_tokens=True)
        if not folder.name.startswith("wordpiece"):
            assert loaded["texts"] == texts
        assert loaded["parallel"]
        assert loaded["padded"] == tokenizer(texts, padding=True).input_ids
        assert loaded["keys"] == ["attention_mask", "input_ids"]
        assert loaded["model_max_length"] == 64
        assert loaded["special"] == sorted(tokenizer.all_special_ids)
        assert loaded["vocab"] == tokenizer.get_vocab()


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Path, bytes]:
    """Texts, the folder of every algorithm's tokenizer of them, trained in a process of its own, and what that process
    has shown on its terminal.
    """
    rng = Random(0)  # words of chance, so that many merges are equally good
    texts = TEXTS + ["".join(rng.choices("aeioubdgkptsr ", k=40)) for _ in range(60)]
    folder = tmp_path_factory.mktemp("elsewhere")
    code = f"""if True:
        from paperformer.tokenization import train_tokenizer
        for algorithm in {ALGORITHMS!r}:
            tokenizer = train_tokenizer(reversed({texts!r}), 310, append_eos=True, algorithm=algorithm)
            tokenizer.save_pretrained({str(folder)!r} + "/" + algorithm)"""
    terminal, stderr = pty.openpty()
    termios.tcsetwinsize(stderr, (24, 80))
    command = [sys.executable, "-W", "ignore", "-c", code]
    with subprocess.Popen(command, stderr=stderr, stdout=subprocess.DEVNULL) as process:
        os.close(stderr)  # the child holds the only copy: when it ends, reading ends with an OSError
        shown = b""
        with contextlib.suppress(OSError):
            while chunk := os.read(terminal, 4096):
                shown += chunk
    os.close(terminal)
    assert process.returncode == 0, shown.decode()
    return texts, folder, shown


def test_training_is_deterministic(elsewhere: tuple[list[str], Path, bytes], tmp_path: Path) -> None:
    """In one process, and in another one, whose hash seeds differ; the order of the texts does not matter."""
    texts, there, _ = elsewhere
    for algorithm in ALGORITHMS:
        here = tmp_path / algorithm
        train_tokenizer(texts, 310, append_eos=True, algorithm=algorithm).save_pretrained(here)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            assert (here / name).read_bytes() == (there / algorithm / name).read_bytes(), algorithm


def test_progress_goes_to_a_terminal(elsewhere: tuple[list[str], Path, bytes]) -> None:
    _, _, shown = elsewhere
    for stage in (b"Compute merges", b"EM training", b"Count characters"):
        assert stage in shown


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_corpus_is_read_once_and_lazily(algorithm: str) -> None:
    read = []

    def stream():
        for text in TEXTS:
            read.append(text)
            yield text

    streamed = train_tokenizer(stream(), 300, append_eos=False, algorithm=algorithm)
    assert read == TEXTS
    listed = train_tokenizer(TEXTS, 300, append_eos=False, algorithm=algorithm)
    assert streamed.backend_tokenizer.to_str() == listed.backend_tokenizer.to_str()


def test_normalization_happens_in_training_too() -> None:
    decomposed = [unicodedata.normalize("NFD", text) for text in ["über", "süß für"]] * 5
    tokenizer = train_tokenizer(decomposed, 320, append_eos=False, algorithm="bpe", normalization="NFC")
    assert "ü" in tokenizer.get_vocab()
    assert "\u0308" not in tokenizer.get_vocab()
    assert tokenizer(decomposed).input_ids == tokenizer(["über", "süß für"] * 5).input_ids


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_log_gets_no_progress_bar(algorithm: str, capfd: pytest.CaptureFixture[str]) -> None:
    train_tokenizer(TEXTS, 300, append_eos=False, algorithm=algorithm)
    assert capfd.readouterr() == ("", "")


def test_a_log_gets_lines_where_reading_takes_long(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paperformer.tokenization.corpus.SECONDS_BETWEEN_LINES", 0)
    train_tokenizer(TEXTS, 270, append_eos=False)
    lines = capfd.readouterr().err.splitlines()
    assert lines[0] == "tokenizer: 1 of 30 texts read"
    assert lines[-1] == "tokenizer: all 30 texts read; choosing the vocabulary"
    train_tokenizer(TEXTS, 270, append_eos=False, show_progress=False)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("texts", [[], ["", ""], iter(())], ids=["none", "empty", "empty stream"])
def test_empty_corpus_is_refused(algorithm: str, texts) -> None:
    with pytest.raises(ValueError, match="texts is empty"):
        train_tokenizer(texts, 300, append_eos=True, algorithm=algorithm)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_too_small_vocabulary_is_refused(algorithm: str) -> None:
    smallest = {"wordpiece": 5}.get(algorithm, 260)
    assert smallest_vocab_size(algorithm) == smallest
    assert smallest_vocab_size(algorithm, ["<2de>", "<2fr>"]) == smallest + 2
    with pytest.raises(ValueError, match=rf"vocab_size is {smallest - 1}, and must be at least {smallest}: 4 special"):
        train_tokenizer(TEXTS, smallest - 1, append_eos=True, algorithm=algorithm)
    if algorithm != "unigram":  # which needs room for all characters of the texts; see there
        assert len(train_tokenizer(TEXTS, smallest, append_eos=True, algorithm=algorithm)) == smallest
    with pytest.raises(ValueError, match=rf"at least {smallest + 5}: 7 special tokens, 2 user symbols and"):
        train_tokenizer(
            TEXTS,
            smallest + 4,
            append_eos=True,
            algorithm=algorithm,
            mask_token=True,
            sentinels=2,
            user_symbols=["<2de>", "<2fr>"],
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_frequency": 0}, "min_frequency is 0, and must be at least 1"),
        ({"algorithm": "sentencepiece"}, "algorithm is 'sentencepiece', and must be one of byte_bpe, bpe, unigram"),
        ({"normalization": "NFD"}, "normalization is 'NFD', and must be one of none, NFC, NFKC"),
        ({"algorithm": "wordpiece", "prefix_space": True}, "wordpiece has no prefix space"),
        ({"algorithm": "characters", "prefix_space": True}, "characters has no prefix space"),
    ],
)
def test_contradictions_are_refused(options, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train_tokenizer(TEXTS, 300, append_eos=True, **options)


def test_one_string_is_refused() -> None:
    with pytest.raises(TypeError, match="texts is one string"):
        train_tokenizer("the cat", 300, append_eos=True)


@pytest.mark.parametrize("algorithm", ["byte_bpe", "bpe", "wordpiece"])
def test_a_smaller_vocabulary_than_asked_for_warns(algorithm: str) -> None:
    with pytest.warns(
        UserWarning, match=r"vocabulary has \d+ tokens instead of vocab_size=300: no other pair"
    ) as caught:
        tokenizer = train_tokenizer(["ab", "ab", "xy"], 300, append_eos=False, algorithm=algorithm)
    assert caught[0].filename == __file__
    assert "ab" in tokenizer.get_vocab()
    assert "xy" not in tokenizer.get_vocab(), "a pair below min_frequency was merged"
