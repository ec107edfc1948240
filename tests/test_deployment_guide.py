"""The guide to deploying: its commands and its Python run as they are written, and its table is that of the formats."""

import json
import re
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
from paperformer.cli import main
from paperformer.export.coverage import coverage_table
from paperformer.export.formats.registry import FORMATS

GUIDE = (Path(__file__).parents[1] / "docs" / "deployment.md").read_text("utf-8")
LINES = ["The dog runs.", "A cat sings a song."]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.manual_seed(1)
    size: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 2}
    size |= {"max_position_embeddings": 130}
    for name, append_eos in (("en-is", True), ("my-lm", False)):
        tokenizer = train_tokenizer(LINES, vocab_size=264, append_eos=append_eos)
        model = tmp_path / "runs" / name / "model"
        if append_eos:
            config = PaperformerSeq2SeqConfig(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, **size)
            PaperformerForConditionalGeneration(config).save_pretrained(model)
        else:
            lm = PaperformerLMConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **size)
            PaperformerForCausalLM(lm).save_pretrained(model)
        tokenizer.save_pretrained(model)
        (model.parent / "recipe.yaml").write_text("data: {}\n")
        (model.parent / "evaluation").mkdir()
        row = json.dumps([LINES[0]] * (3 if append_eos else 2))
        (model.parent / "evaluation" / "samples.jsonl").write_text(f"{row}\n")
    for name in ("news.en", "test.en", "test.is"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in LINES))
    (tmp_path / "test.tsv").write_text("".join(f"{line}\t{line}\n" for line in LINES))
    monkeypatch.setattr("paperformer.export.running.HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr("paperformer.export.comparison.ROUNDS", 1)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.proof
def test_the_commands_and_the_python_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)[:-1]:
        for line in block.splitlines():
            main(line.split()[1:])
    assert (folder / "news.is").read_text("utf-8").count("\n") == 2
    for name in ("en-is-ct2", "en-is-onnx", "my-lm-gguf", "checked"):
        assert "milliseconds a sequence" in (folder / name / "export.md").read_text("utf-8")
    (block,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    capsys.readouterr()
    exec(block, {})
    assert "'greedy': " in capsys.readouterr().out
    command = re.findall(r"```bash\n(.*?)```", GUIDE, re.DOTALL)[-1].split()
    assert (command[0], command[2:]) == ("python", ["--batch_size", "16", "<", "news.en"])
    assert (folder / command[1]).is_file()


def test_the_table_is_that_of_the_formats() -> None:
    (table,) = re.findall(r"<!-- coverage -->\n(.*?)\n<!-- /coverage -->", GUIDE, re.DOTALL)
    assert table == coverage_table()


def test_the_quantisations_are_those_of_the_formats() -> None:
    for name, one in FORMATS.items():
        (row,) = re.findall(rf"^\| `{name}` \|.*$", GUIDE, re.MULTILINE)
        assert row.split(" | ")[2].split(", ") == list(one.quantizations)
        assert f"paperformer[{one.extra}]" in row
