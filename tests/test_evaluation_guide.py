"""Every command and the Python of the guide to evaluation runs as it is written."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
    train_tokenizer,
    translate,
)
from paperformer.cli import main
from paperformer.training.evaluation.metrics import output_metrics

GUIDE = (Path(__file__).parents[1] / "docs" / "evaluation.md").read_text("utf-8")
SOURCES, REFERENCES = ["The dog runs.", "A cat sings a song."], ["Hundurinn hleypur.", "Köttur syngur lag."]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run: three runs with a tiny random model each, and the files that are named."""
    folder = tmp_path_factory.mktemp("guide")
    tokenizer = train_tokenizer(SOURCES + REFERENCES, vocab_size=264, append_eos=True)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "max_position_embeddings": 130}
    model = folder / "runs" / "my-lm" / "model"
    PaperformerForCausalLM(
        PaperformerLMConfig(vocab_size=len(tokenizer), num_hidden_layers=1, bos_token_id=0, **size)
    ).save_pretrained(model)
    train_tokenizer(SOURCES + REFERENCES, vocab_size=264, append_eos=False).save_pretrained(model)
    (model.parent / "recipe.yaml").write_text("data: {}\n")
    config = PaperformerSeq2SeqConfig(vocab_size=len(tokenizer), encoder_layers=1, decoder_layers=1, **size)
    for name in ("en-is", "smaller"):
        model = folder / "runs" / name / "model"
        PaperformerForConditionalGeneration(config).save_pretrained(model)
        tokenizer.save_pretrained(model)
        (model.parent / "recipe.yaml").write_text("data: {}\n")
        (model.parent / "evaluation").mkdir()
        (model.parent / "evaluation" / "test.outputs.jsonl").write_text(f'"{name} hleypur."\n"Lag."\n', "utf-8")
    files = {"test.en": SOURCES, "test.is": REFERENCES, "hypotheses.txt": ["Hundur", "Lag."], "my.txt": SOURCES}
    files["pairs.tsv"] = ["\t".join(pair) for pair in zip(SOURCES, REFERENCES, strict=True)]
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


@pytest.mark.proof
def test_commands_run(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    blocks = re.findall(r"^```bash\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line) for block in blocks for line in block.replace("\\\n", "").splitlines()]
    ours = [arguments for program, *arguments in commands if program == "paperformer"]
    assert len(ours) >= 7
    for arguments in ours:
        is_translation = "my.txt" not in arguments
        main([*arguments, *(["--resamples", "5"] if is_translation else [])])
        assert (
            "BLEU" if is_translation else "er_byte" if "json" in arguments else "Bits a byte"
        ) in capsys.readouterr().out
    assert (folder / "compared" / "sentences.html").is_file()


@pytest.mark.proof
def test_python_runs(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(folder)
    names: dict[str, Any] = {"sources": SOURCES, "references": REFERENCES}
    names |= {"outputs": translate("runs/en-is", SOURCES), "others": ["Hundur", "Lag."]}
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 4
    for code in blocks:
        exec(code, names)
        assert "nan" not in capsys.readouterr().out
    assert len(names["report"].comparisons) == len(output_metrics())
    for path in re.findall(r"`(report\.system\.\w+)`", GUIDE):
        assert eval(path, names)


def test_every_metric_is_explained() -> None:
    explained = re.findall(r"^\| `([\w+]+)`", GUIDE, flags=re.MULTILINE)
    assert explained[: len(output_metrics())] == [metric.name for metric in output_metrics()]
