"""What the README says is there, and what it shows runs.

Commands run on small files and small trained models, where the README's would be. Of those that would train for long
the recipe is read; of those that need the Hub the options are looked up.
"""

import contextlib
import io
import re
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from accelerate.commands.launch import launch_command_parser

import paperformer
from paperformer.cli import main
from paperformer.training.reporting.recorder import LOG_EVERY
from paperformer.training.tasks.registry import OBJECTIVES

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text("utf-8")
NEEDS_THE_HUB = re.compile(r"openai-community/|google-bert/")

WORDS = {"dog": "hundur", "cat": "köttur", "man": "maður", "child": "barn", "boat": "bátur", "horse": "hestur"}
PAIRS = [(f"A {a} and a {b} are number {n}.", f"{x} og {y} eru númer {n}.")
         for a, x in WORDS.items() for b, y in WORDS.items() for n in range(250)]  # fmt: skip
SMALL = {
    "data.hold_out": 0.05,
    "tokenizer.vocab_size": 300,
    "model": {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2},
    "optimization": {"tokens_per_batch": 256, "max_steps": 2 * LOG_EVERY, "warmup_steps": 1},
    "evaluation": {"every_steps": LOG_EVERY, "num_beams": 1, "validation_samples": 1, "samples": 1},
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)


def commands() -> list[list[str]]:
    """The lines of each shell block, which belong together; and each command with options that a sentence shows."""
    lines = [block.replace("\\\n", " ").splitlines() for block in blocks("bash")]
    lines += [[line] for line in sorted(set(re.findall(r"`((?:paperformer|make|pip) [^`]*-[^`]*)`", README)))]
    return [[line for line in block if shlex.split(line, comments=True)] for block in lines]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README speaks of, and finished runs of a few steps."""
    folder = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in ("my-data", "my-text"):
            Path(name).mkdir()
        Path("my.tsv").write_text("en\tis\n" + "".join("\t".join(pair) + "\n" for pair in PAIRS), "utf-8")
        Path("my.txt").write_text("".join(f"{english}\n" for english, _ in PAIRS), "utf-8")
        for number, split in enumerate(("train", "dev", "test")):
            rows = PAIRS[number::30]
            for side, language in enumerate(("en", "is")):
                Path(f"my-data/{split}.{language}").write_text("".join(f"{row[side]}\n" for row in rows), "utf-8")
        for name in ("train.txt", "validation.txt", "test.txt"):
            Path("my-text", name).write_text(Path("my.txt").read_text("utf-8"), "utf-8")
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{row[side]}\n" for row in PAIRS)
            for name in ("train", "test"):
                Path(f"{name}.{language}").write_text(text, "utf-8")
        Path("app.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "A dog."\nmsgstr ""\n', "utf-8")
        paperformer.train({"objective": "lm", "data": {"train": "my.txt", "context_length": 32}}, SMALL)
        pairs = {"train": "my.tsv", "source_language": "en", "target_language": "is", "hold_out": 0.01}
        quick = {"name": "cldr-en-de", "output_dir": "runs/quickstart"}
        paperformer.train({"objective": "seq2seq", **quick}, SMALL, data=pairs)
    return folder


def test_links_lead_to_files() -> None:
    links = [link for link in re.findall(r"\]\(([^)]*)\)", README) if "://" not in link]
    assert len(links) > 40
    assert [link for link in links if not (REPOSITORY / link).exists()] == []


def test_every_guide_is_linked() -> None:
    assert [path.name for path in (REPOSITORY / "docs").glob("*.md") if f"docs/{path.name}" not in README] == []


def test_python_code_runs(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(place)

    def train(*recipe: Any, **fields: Any) -> paperformer.Run:
        assert paperformer.read_recipe(*recipe, **fields).run.name == "longer"
        return paperformer.Run("runs/my-lm")

    monkeypatch.setattr(paperformer, "train", train)
    torch.manual_seed(1)
    assert len(blocks("python")) == 4
    exec("\n".join(blocks("python")), {})
    said = capsys.readouterr().out
    assert "test: " in said
    assert "KING RICHARD:" in said


def check_make(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (REPOSITORY / "Makefile").read_text("utf-8"), flags=re.MULTILINE)
    for assignment in words[1:]:
        options = assignment.removeprefix("ARGS=").split()
        assert options[0] in (REPOSITORY / "benchmarks" / "training_speed.py").read_text("utf-8")


def check_pip(words: list[str]) -> None:
    assert words[:2] == ["install", "-e"]
    assert words[3:] == ["-c", "constraints.txt"]
    assert (REPOSITORY / "constraints.txt").is_file()
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(words[2].removeprefix(".").strip("[]").split(",")) <= {"", *extras}


def check_accelerate(words: list[str]) -> None:
    assert words.pop(0) == "launch"
    launched = launch_command_parser().parse_args(words)
    assert launched.module
    objective = launched.training_script.removeprefix("paperformer.training.train_")
    OBJECTIVES[objective].read_recipe(launched.training_script_args)


def check_paperformer(words: list[str]) -> None:
    if words[0] == "train":
        OBJECTIVES[words[1]].read_recipe(words[2:])
    elif any(map(NEEDS_THE_HUB.search, words)):
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown), pytest.raises(SystemExit):
            main([*words[: 2 if words[0] == "tokenizer" else 1], "--help"])
        assert [word for word in words if word.startswith("--") and word not in shown.getvalue()] == []
    else:
        main(words)


def check_echo(words: list[str]) -> None:
    """A text, and the command that it is given to."""
    text, pipe, program, *command = words
    assert (pipe, program) == ("|", "paperformer")
    Path("echoed.txt").write_text(f"{text}\n", "utf-8")
    shown = io.StringIO()
    with Path("echoed.txt").open() as stdin, contextlib.redirect_stdout(shown), pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", stdin)
        main(command)
    assert shown.getvalue() == "Mittwoch, 5. März 2025\n"


CHECKS: dict[str, Callable[[list[str]], None]] = {
    "echo": check_echo,
    "make": check_make,
    "pip": check_pip,
    "accelerate": check_accelerate,
    "paperformer": check_paperformer,
}


@pytest.mark.parametrize("block", commands(), ids=lambda block: block[0][:40])
def test_commands(block: list[str], place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    for line in block:
        program, *words = shlex.split(line, comments=True)
        CHECKS[program](words)


def test_results_are_those_of_the_cards() -> None:
    rows = re.findall(r"^\| \[`[\w-]+`\].*\| (.*) \(\[card\]\((.*)\)\) \|$", README, flags=re.MULTILINE)
    cards = {path.stem for path in (REPOSITORY / "model_cards").glob("*.md")}
    assert {Path(card).stem for _, card in rows} == cards
    for result, card in rows:
        metadata = yaml.safe_load((REPOSITORY / card).read_text("utf-8").split("---\n")[1])
        (test,) = [part for part in metadata["model-index"][0]["results"] if part["dataset"]["split"] == "test"]
        known = {str(metric["value"]) for metric in test["metrics"]}
        known |= {metric["args"]["measured_over"].split()[0] for metric in test["metrics"]}
        assert set(re.findall(r"\d+(?:[.,]\d+)*", result)) <= known
