"""The examples of the guide to Python, run in order as they are written, but with small models and few steps."""

import os
import re
import signal
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import paperformer
from paperformer.training.engine import loop
from paperformer.training.engine.loop import Trainer
from paperformer.training.tasks.objective import Objective

FOLDER = Path(__file__).parents[1] / "docs"
GUIDE = (FOLDER / "python.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", GUIDE, flags=re.MULTILINE | re.DOTALL))
BLOCK = re.compile(r"^```python\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)

ANIMALS = {"dog": "Hundurinn", "cat": "Kötturinn", "man": "Maðurinn", "bird": "Fuglinn"}
VERBS = {"runs": "hleypur", "sings": "syngur", "sleeps": "sefur", "waits": "bíður"}
PAIRS = [(f"The {a} {v} {n} times.", f"{b} {w} {n} sinnum.")
         for a, b in ANIMALS.items() for v, w in VERBS.items() for n in range(600)]  # fmt: skip
SMALL = {
    "tokenizer.vocab_size": 300,
    "model.hidden_size": 16,
    "model.intermediate_size": 32,
    "model.num_attention_heads": 2,
    "optimization.tokens_per_batch": 256,
    "optimization.max_steps": 4,
    "optimization.warmup_steps": 1,
    "evaluation.every_steps": 10,
    "evaluation.validation_samples": 1,
    "evaluation.samples": 1,
    "evaluation.num_beams": 1,
}


@pytest.fixture
def fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recipes that say nothing of their size get a small one."""
    read = Objective.read_recipe

    def read_small(objective: Objective, words: list[str]) -> Any:
        names = {word.removeprefix("--") for word in words if word.startswith("--")}
        is_open = "config" not in names and "data.train" in names
        more = [f"--{name}={value}" for name, value in SMALL.items() if is_open and name not in names]
        return read(objective, [*more, *words])

    monkeypatch.setattr(Objective, "read_recipe", read_small)
    measure = cache(loop.peak_flops_of)  # takes a second each time
    monkeypatch.setattr(loop, "peak_flops_of", lambda device, _: measure(device, "no"))


def stop_in_the_run_that_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    step, is_stopped = Trainer._step, []

    def step_and_interrupt(trainer: Any, *rest: Any) -> None:
        if trainer.folder.path.name == "stopped" and not is_stopped:
            is_stopped.append(True)
            os.kill(os.getpid(), signal.SIGINT)
        step(trainer, *rest)

    monkeypatch.setattr(Trainer, "_step", step_and_interrupt)


@pytest.mark.proof
@pytest.mark.usefixtures("fewer_steps")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.txt").write_text("".join(f"{english}\n" for english, _ in PAIRS), "utf-8")
    Path("my.tsv").write_text("en\tis\n" + "".join("\t".join(pair) + "\n" for pair in PAIRS[::20]), "utf-8")
    stop_in_the_run_that_is_called_so(monkeypatch)
    names: dict[str, Any] = {}
    printed: dict[str, str] = {}
    for section, text in SECTIONS.items():
        for block in BLOCK.findall(text):
            exec(block, names)
            said = capsys.readouterr()
            printed[section] = printed.get(section, "") + said.out
            comments = re.findall(r"^ *print\((?!len).*\)  # (.*?)$", block, flags=re.MULTILINE)
            assert [comment for comment in comments if "->" not in comment and comment not in said.out] == []
            if section == "Stop and go on":
                assert "going on from " in said.err
    assert {path.name for path in Path("runs").iterdir() if path.name[0] != "."} == {
        "my-lm", "my-en-is", "small", "twice", "stopped",
    }  # fmt: skip
    assert {"train", "validation", "test"} == {line.split()[0] for line in printed["Prepare"].splitlines()[:3]}
    assert names["losses"]
    assert names["logits"].shape[::2] == (2, names["run"].model.config.vocab_size)
    assert len(names["translations"]) == len(names["greedy"]) == 2
    assert names["run"].folder == Path("runs/stopped")


def test_every_public_function_is_in_the_guide() -> None:
    lowercase = {name for name in paperformer.__all__ if name[0].islower()} - {"train_tokenizer"}
    assert lowercase == set(re.findall(r"paperformer\.([a-z]\w+)\(", GUIDE))
    errors = {name for name in paperformer.__all__ if name.endswith(("Error", "Stopped"))}
    assert errors == set(re.findall(r"^\| `paperformer\.(\w+)`", SECTIONS["Errors"], flags=re.MULTILINE))


def test_the_table_has_all_that_a_run_knows() -> None:
    known = {name for name in dir(paperformer.Run) if not name.startswith("_")} | {
        f.name for f in fields(paperformer.Run)
    }
    assert set(re.findall(r"^\| `run\.(\w+)`", GUIDE, flags=re.MULTILINE)) == known


def test_links_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in SECTIONS}
    links = re.findall(r"\]\(([^)]*)\)", GUIDE)
    assert {link[1:] for link in links if link.startswith("#")} == anchors
    assert [link for link in links if link[0] != "#" and not (FOLDER / link.partition("#")[0]).exists()] == []
