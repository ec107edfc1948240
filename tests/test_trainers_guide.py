"""The examples of the guide to other trainers, run in order as they are written; and its names of modules."""

import re
from pathlib import Path

import pytest
from torch import nn

from paperformer.modeling.families import FAMILIES

FOLDER = Path(__file__).parents[1] / "docs"
GUIDE = (FOLDER / "trainers.md").read_text("utf-8")
SECTIONS = re.findall(r"^## (.*?)$", GUIDE, flags=re.MULTILINE)
SIZE = {"vocab_size": 50, "hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2}


@pytest.mark.proof
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```$", GUIDE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1 + len(SECTIONS)
    exec("\n".join(blocks), {})
    losses = re.findall(r"^\d\.\d+$", capsys.readouterr().out, flags=re.MULTILINE)
    assert len(losses) == 2
    assert (tmp_path / "trained" / "checkpoint-4" / "modeling_lm.py").is_file()
    assert not (tmp_path / "adapter" / "model.safetensors").exists()
    assert (tmp_path / "merged" / "model.safetensors").is_file()


@pytest.mark.parametrize("family", FAMILIES)
def test_the_modules_for_adapters_are_all_projections(family: str) -> None:
    table = GUIDE.partition("| `target_modules` |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(\w+_proj)`", table))
    model = FAMILIES[family].head(FAMILIES[family].config(**SIZE, gated_mlp=True))
    linear = {name.rpartition(".")[2] for name, module in model.base_model.named_modules() if type(module) is nn.Linear}
    assert named == linear - {"dense"}  # of the encoder's pooling
    expression = re.search(r'`r"(.*?)"`', GUIDE)
    assert expression is not None
    found = [name for name, _ in model.named_modules() if re.fullmatch(expression[1], name)]
    assert len(found) == (4 * model.config.decoder_layers if family == "seq2seq" else 0)


def test_links_lead_somewhere() -> None:
    anchors = {re.sub(r"[^\w\- ]", "", name.lower()).replace(" ", "-") for name in SECTIONS}
    links = re.findall(r"\]\(([^)]*)\)", GUIDE)
    assert {link[1:] for link in links if link.startswith("#")} == anchors
    assert [link for link in links if not link.startswith("#") and not (FOLDER / link).exists()] == []
