"""The commands and the Python of the guide to translating run as they are written."""

import io
import json
import re
import shlex
from ast import literal_eval
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
    train_tokenizer,
)
from paperformer.api import model_processes
from paperformer.cli import main

GUIDE = (Path(__file__).parents[1] / "docs" / "translation.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^##? (.*?)\n(.*?)(?=^## |\Z)", GUIDE, flags=re.MULTILINE | re.DOTALL))
LINES = ["The dog runs.", "A cat sings a song."]
FILES = {
    "news.en": LINES,
    "news.is": LINES[::-1],
    "beginnings.is": ["Nei,", ""],
    "terms.tsv": ["dog\trakki"],
    "prompts.txt": ["Einu sinni", "The"],
}
SIZE = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "max_position_embeddings": 130}


class PoolInThisProcess:
    """Does at once what processes would do each by itself, which take seconds to begin."""

    def __init__(self, count: int, context: object, begin: Callable[..., None], arguments: tuple[Any, ...]):
        begin(*arguments)

    def __enter__(self) -> "PoolInThisProcess":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(call(*arguments))
        return future


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for place, name in enumerate(["en-is", "en-is-2", "en-is-3", "is-lm"]):
        torch.manual_seed(place)
        is_lm = name == "is-lm"
        tokenizer = train_tokenizer(LINES, vocab_size=264, append_eos=not is_lm)
        size = {"vocab_size": len(tokenizer), **SIZE}
        model = tmp_path / "runs" / name / "model"
        if is_lm:
            PaperformerForCausalLM(PaperformerLMConfig(num_hidden_layers=1, **size)).save_pretrained(model)
        else:
            config = PaperformerSeq2SeqConfig(encoder_layers=1, decoder_layers=1, **size)
            PaperformerForConditionalGeneration(config).save_pretrained(model)
        tokenizer.save_pretrained(model)
        (model.parent / "recipe.yaml").write_text("data: {}\n")
    for name, lines in FILES.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    (tmp_path / "app.po").write_text('msgid ""\nmsgstr ""\n\nmsgid "The dog runs."\nmsgstr ""\n', "utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model_processes, "ProcessPoolExecutor", PoolInThisProcess)
    monkeypatch.setenv("RANK", "0")
    return tmp_path


def run(line: str) -> str:
    """A line as a shell has it: a file or two into a command, and what comes out into another, or returned."""
    before, _, command = line.rpartition(" | ")
    command, _, target = command.partition(" > ")
    reading = before.split()
    contents = [Path(name).read_text("utf-8").splitlines() for name in reading[1:]]
    if reading:
        assert reading[0] == {1: "cat", 2: "paste"}[len(contents)]
    piped = "".join("\t".join(columns) + "\n" for columns in zip(*contents, strict=True))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()) as out:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(piped.encode())))
        launcher, *words = shlex.split(command)
        if launcher == "accelerate":  # as it tells the first of two processes
            for name, value in (("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2"), ("RANK", "0")):
                patch.setenv(name, value)
            words = words[words.index("paperformer") + 1 :]
        main(words)
    if target:
        Path(target.strip()).write_text(out.getvalue(), "utf-8")
    return out.getvalue()


def run_section(name: str) -> list[str]:
    """What the commands of a section put out."""
    blocks = re.findall(r"```bash\n(.*?)```", SECTIONS[name], re.DOTALL)
    return [run(line) for block in blocks for line in block.splitlines()]


@pytest.mark.proof
def test_lines_and_catalogues(folder: Path) -> None:
    (folder / "news.is").unlink()
    _, by_pipe = run_section("Translating files and pipes")
    assert by_pipe.count("\n") == 2
    run_section("Message catalogues")
    assert (folder / "app.is.po").stat().st_size > (folder / "app.po").stat().st_size


@pytest.mark.proof
def test_other_searches(folder: Path) -> None:
    plain = run("paperformer translate runs/en-is --input news.en").splitlines()
    moses, records = run_section("Several translations, with scores")
    assert [line.split(" ||| ")[0] for line in moses.splitlines()] == ["0"] * 5 + ["1"] * 5
    first = json.loads(records.splitlines()[0])["hypotheses"][0]
    assert [first["text"], f"{first['score']:.6f}"] == moses.splitlines()[0].split(" ||| ")[1:]
    assert first["text"] == plain[0]
    assert [out.count("\n") for name in ("Several models", "Minimum Bayes risk") for out in run_section(name)] == [2, 2]
    everywhere, by_file, by_column, terms = run_section("What translations begin with, and terms")
    assert all(line.startswith("Nei,") for line in everywhere.splitlines())
    assert by_file.splitlines()[0] == everywhere.splitlines()[0]
    assert by_column == by_file
    assert "rakki" in terms.splitlines()[0]
    assert terms.splitlines()[1] == plain[1]
    (aligned,) = run_section("Which words belong together")
    assert [line.split(" ||| ")[0] for line in aligned.splitlines()] == plain
    threads = torch.get_num_threads()
    run_section("Several processes")
    torch.set_num_threads(threads)
    for name in ("news-by-two.is", "by-launcher.is"):
        assert (folder / name).read_text("utf-8").splitlines() == plain


@pytest.mark.proof
def test_likelihoods_and_prompts(folder: Path) -> None:
    pairs, _, texts = run_section("How likely given lines are")
    assert (folder / "by-files.tsv").read_text("utf-8") == (folder / "scores.tsv").read_text("utf-8") == pairs
    assert [len(line.split("\t")) for line in (pairs + texts).splitlines()] == [3] * 4
    one, _ = run_section("Prompts")
    assert one.startswith("Einu sinni")
    written = [json.loads(line) for line in (folder / "written.jsonl").read_text("utf-8").splitlines()]
    assert [record["prompt"] for record in written] == FILES["prompts.txt"]
    assert [len(record["continuations"]) for record in written] == [3, 3]


FORMATS = {
    "strings.csv": 'id,source\n1,"The dog runs."\n',
    "pairs.tsv": "The dog runs.\tx\n",
    "texts.jsonl": '{"text": {"en": "The dog runs."}}\n',
    "app.xlf": '<xliff version="1.2"><file><trans-unit><source>The dog runs.</source></trans-unit></file></xliff>',
    "memory.tmx": '<tmx><header srclang="en"/><tu><tuv xml:lang="en"><seg>The dog runs.</seg></tuv></tu></tmx>',
    "news.en": "The dog runs.\n",
}
"""The input of each command, in the order of the guide."""


@pytest.mark.proof
def test_other_formats(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("Tables and JSON Lines", "XLIFF", "Translation memories", "Placeholders, tags and numbers")
    blocks = [block for name in names for block in re.findall(r"```bash\n(.*?)```", SECTIONS[name], re.DOTALL)]
    commands = [line.split() for block in blocks for line in block.splitlines()]
    assert [words[words.index("--input") + 1] for words in commands] == list(FORMATS)
    for words, (name, content) in zip(commands, FORMATS.items(), strict=True):
        (folder / name).write_text(content, "utf-8")
        main(words[1:])
        if "--output" in words:
            written = (folder / words[words.index("--output") + 1]).read_text("utf-8")
            assert len(written) > len(content)
            said = capsys.readouterr().err
            assert re.search("1 (rows|objects|units) translated", said)


@pytest.mark.proof
def test_the_python_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    plain, others, of_transformers = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(plain, names)
    printed = capsys.readouterr().out
    assert printed.startswith("['")
    assert ", '', '" in printed
    exec(others, names)
    lines = capsys.readouterr().out.splitlines()
    assert len(names["others"]) == 2
    assert any(line.startswith("['Nei,") and "rakki" in line for line in lines)
    exec(of_transformers, names)
    text, texts, several = (literal_eval(line) for line in capsys.readouterr().out.splitlines())
    assert text[0]["translation_text"].count("\n") >= 3
    assert [list(found) for found in texts] == [["translation_text"]] * 2
    assert [list(found) for found in several] == [["translation_text", "score"]] * 3
