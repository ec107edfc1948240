import contextlib
import io
import shutil
import subprocess
import sys
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any, Unpack, get_args, get_origin

import pytest

from paperformer import cli
from paperformer.cli import COMMANDS, Command, Group, main
from paperformer.training.evaluation.decoding import translate


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., Path]:
    """Writes lines to a file of this name."""

    def write(name: str, *content: str) -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{line}\n" for line in content), "utf-8")
        return path

    return write


def commands() -> dict[str, Command]:
    """Every command by the words that name it."""
    named: dict[str, Command] = {}
    for name, command in COMMANDS.items():
        members = command.commands if isinstance(command, Group) else {"": command}
        named |= {f"{name} {member}".strip(): function for member, function in members.items()}
    return named


def is_raw(function: Command) -> bool:
    """Whether a command parses its arguments itself."""
    return any(parameter.kind is parameter.VAR_POSITIONAL for parameter in signature(function).parameters.values())


def help_of(words: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "10000")  # no line breaks inside words with hyphens
        with contextlib.suppress(SystemExit):
            main([*words.split(), "--help"])
    said = capsys.readouterr()
    assert said.err == ""
    return " ".join(said.out.split())


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        main(arguments)
        shown = capsys.readouterr().out
        for name in ("quickstart", "tokenizer", "train", "plot", "plan", "push"):
            assert f"\n  {name} " in shown
        assert shown.count("\n  ") == len(COMMANDS)


@pytest.mark.parametrize("name", [name for name, command in COMMANDS.items() if isinstance(command, Group)])
def test_a_group_lists_its_commands(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    group = COMMANDS[name]
    assert isinstance(group, Group)
    for option in ("--help", "-h"):
        main([name, option])
        shown = capsys.readouterr().out
        assert shown.startswith(group.summary)
        for member, function in group.commands.items():
            summary = (function.__doc__ or "").split("\n")[0]
            assert summary
            assert f"\n  {member:<12}{summary}\n" in shown
        assert f"paperformer {name} {next(iter(group.commands))} --help" in shown


@pytest.mark.parametrize("words", [words for words, function in commands().items() if not is_raw(function)])
def test_every_option_is_explained(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(words, capsys)
    function = commands()[words]
    assert shown.startswith(f"usage: paperformer {words} ")
    unpacked = [get_args(hint)[0] for hint in function.__annotations__.values() if get_origin(hint) is Unpack]
    hints = dict(item for source in (function, *unpacked) for item in source.__annotations__.items())
    options = [option for option, hint in hints.items() if option != "return" and get_origin(hint) is not Unpack]
    assert options
    documentation = " ".join(" ".join(source.__doc__ or "" for source in (function, *unpacked)).split())
    for option in options:
        explanation = documentation.split(f" {option}: ", 1)[1].split(". ")[0]
        assert len(explanation.split()) > 1
        assert explanation in shown


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("plan", ["--preset", "--hardware"]),
        ("train seq2seq", ["--config", "--data.target_language", "--model.encoder_layers"]),
        ("train lm", ["--config", "--data.context_length", "--model.num_hidden_layers"]),
    ],
)
def test_commands_that_parse_their_own_arguments(
    words: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_raw(commands()[words])
    shown = help_of(words, capsys)
    for option in options:
        assert f" {option} " in shown


def test_help_does_not_wait_for_torch() -> None:
    script = """
import contextlib, sys
sys.argv = ["paperformer", "--help"]
from paperformer.cli import main
for words in ("", "plot", "tokenizer", "tokenizer train", "tokenizer compare", "translate", "plot attention"):
    with contextlib.suppress(SystemExit):
        main([*words.split(), "--help"])
print({"torch", "transformers"} & set(sys.modules))
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.count("usage: ") == 5
    assert result.stdout.endswith("\nset()\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["translat"], "'translat' is no command; did you mean paperformer translate?"),
        (["cook"], "'cook' is no command; paperformer --help lists them"),
        (["train"], "the family of models is missing; paperformer train --help lists them"),
        (["train", "bert"], "'bert' is no family of models; paperformer train --help lists them"),
        (["train", "seq2sec"], "'seq2sec' is no family of models; did you mean paperformer train seq2seq?"),
        (["plot", "atention"], "'atention' is no kind of plot; did you mean paperformer plot attention?"),
        (["tokenizer", "trian"], "'trian' is no tokenizer command; did you mean paperformer tokenizer train?"),
        (["tokenizer"], "the tokenizer command is missing; say paperformer tokenizer train, paperformer tokenizer "),
        (["tokenizer", "[a.txt,b.txt]", "out"], "'[a.txt,b.txt]' is no tokenizer command; say paperformer tokenizer "),
        (["train", "lm", "--bananas"], "there is no option --bananas; --help lists them all"),
        (["translate"], "the following arguments are required: model"),
        (["evaluate", "model"], "the following arguments are required: text"),
        (["score", "outputs"], "the following arguments are required: reference"),
        (
            ["translate", "model", "--beams", "3"],
            "there is no option --beams; did you mean --num_beams? (paperformer translate --help)",
        ),
        (["translate", "model", "--num_beams", "many"], "--num_beams is many; it must be an integer"),
        (["translate", "model", "--num_beams", "0"], "num_beams is 0; it must be at least 1"),
        (["evaluate", "m", "s", "--num_beams", "0"], "num_beams is 0; it must be at least 1"),
        (["generate", "model", "x", "--top_p", "0"], "top_p is 0.0; it must be greater than 0 and at most 1"),
        (["generate", "model", "x", "--temperature", "-1"], "temperature is -1.0; it must be at least 0"),
        (["generate", "model", "x", "--max_new_tokens", "0"], "max_new_tokens is 0; it must be at least 1"),
        (["translate", "./nowhere", "--input", "/dev/null"], "there is no folder ./nowhere"),
        (["push", "./nowhere", "me/x"], "nowhere is not a folder"),
        (["score", "./nowhere", "r"], "nowhere cannot be read: No such file"),
    ],
)
def test_bad_command_lines(arguments: list[str], message: str, refused: Callable[..., str]) -> None:
    assert message in refused(*arguments)


def test_folders_that_are_no_models(refused: Callable[..., str], tmp_path: Path, lines: Callable[..., Path]) -> None:
    source = lines("source", "a dog")
    assert "source is a file; it must be a model's folder" in refused("translate", source, "--input", source)
    assert "is no model's folder: no config.json" in refused("translate", tmp_path, "--input", source)
    (tmp_path / "config.json").write_text("{}")
    assert "is no model that can be loaded" in refused("translate", tmp_path, "--input", source)


def test_a_model_of_another_kind(refused: Callable[..., str], lm: Any, seq2seq: Any) -> None:
    assert "holds a paperformer-lm; this command needs a translation model" in refused(
        "translate", lm.folder, "--input", "/dev/null"
    )
    assert "holds a paperformer-seq2seq; this command needs a text-generation model" in refused(
        "generate", seq2seq.folder, "x"
    )


def test_damaged_weights(refused: Callable[..., str], lm: Any, tmp_path: Path) -> None:
    shutil.copytree(lm.folder, tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"half")
    assert "is no text-generation model that can be loaded: " in refused("generate", tmp_path / "model", "x")


def test_translate_a_file_and_standard_input(
    seq2seq: Any, lines: Callable[..., Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = lines("source", "A dog runs.", "", "Two men\u2028talk.", "  ")
    main(["translate", str(seq2seq.folder), "--input", str(source), "--num_beams", "1"])
    from_file = capsys.readouterr().out
    assert from_file.count("\n") == 4
    assert [bool(line) for line in from_file.split("\n")[:4]] == [True, False, True, False]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(source.read_bytes())))
    main(["translate", str(seq2seq.folder), "--num_beams", "1"])
    assert capsys.readouterr().out == from_file


def test_translate_with_two_vocabularies(
    two_vocabularies: Any,
    lines: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
    refused: Callable[..., str],
    tmp_path: Path,
) -> None:
    texts = ["A dog runs.", "Two men talk."]
    source = lines("source", *texts)
    main(["translate", str(two_vocabularies.folder), "--input", str(source), "--num_beams", "1"])
    model, tokenizer = two_vocabularies.model, two_vocabularies.tokenizer
    decode_with = {"target_tokenizer": two_vocabularies.target_tokenizer}
    expected = translate(model, tokenizer, texts, num_beams=1, **decode_with)
    assert capsys.readouterr().out.split("\n")[:2] == expected
    assert expected != translate(model, tokenizer, texts, num_beams=1)

    lacking = shutil.copytree(two_vocabularies.folder, tmp_path / "lacking")
    shutil.rmtree(lacking / "target_tokenizer")
    assert "the target's tokenizer cannot be loaded" in refused("translate", lacking, "--input", source)


def test_standard_input_that_is_empty(
    seq2seq: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"")))
    main(["translate", str(seq2seq.folder)])
    assert capsys.readouterr().out == ""


def test_generate(lm: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def generated(*options: str) -> str:
        main(["generate", str(lm.folder), "A dog", "--max_new_tokens", "9", *options])
        return capsys.readouterr().out

    assert generated().startswith("A dog")
    assert generated("--seed", "1") == generated()
    assert generated("--seed", "2") != generated()
    assert generated("--temperature", "0", "--seed", "1") == generated("--temperature", "0", "--seed", "2")
    main(["generate", str(lm.folder), "", "--max_new_tokens", "2"])


def test_train_passes_its_arguments_on(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []
    monkeypatch.setattr("paperformer.training.run.main", lambda *arguments: calls.append(arguments))
    main(["train", "seq2seq", "--config", "x", "--resume"])
    main(["train", "lm", "--name", "y"])
    assert [(objective.script, rest) for objective, rest in calls] == [
        ("paperformer.training.train_seq2seq", ["--config", "x", "--resume"]),
        ("paperformer.training.train_lm", ["--name", "y"]),
    ]
    main(["train", "--help"])
    assert "paperformer train seq2seq --help" in capsys.readouterr().out


def test_flags_need_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("paperformer.quickstart.run_quickstart", lambda path, fast: calls.append((path, fast)))
    main(["quickstart", "--fast"])
    main(["quickstart", "--output_dir", "there"])
    assert calls == [(Path("runs/quickstart"), True), (Path("there"), False)]


def test_an_interruption_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_call", interrupted)
    with pytest.raises(SystemExit) as stopped:
        main(["push", "a", "b"])
    assert stopped.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("translate none", "start paperformer translate by itself, with --processes 2"),
        ("likelihood none", "start paperformer likelihood by itself, with --processes 2"),
        ("tokenizer show none", "start paperformer tokenizer by itself"),
    ],
)
def test_a_launcher_s_processes_do_not_all_do_the_same(
    words: str, remedy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As accelerate launch and torchrun start them."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    line = f"error: a launcher has started 2 processes, each of which would do all of it; {remedy}\n"
    for rank, expected in (("0", line), ("1", "")):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(SystemExit) as stopped:
            main(words.split())
        assert stopped.value.code == 2
        assert capsys.readouterr().err == expected
    main(["train", "--help"])
