"""The notebooks of docs/tutorials: they run, in a short form, and what is stored is what their cells put out."""

import importlib.util
import json
import logging
import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

REPOSITORY = Path(__file__).parents[1]
TUTORIALS = {path.stem: path for path in sorted((REPOSITORY / "docs" / "tutorials").glob("*.ipynb"))}
GUIDE = (REPOSITORY / "docs" / "tutorials.md").read_text("utf-8")
LARGEST = 300_000  # bytes

SMALL = {f"model.{name}": 16 for name in ("hidden_size", "intermediate_size")}
SHORT: dict[str, dict[str, Any]] = {
    "attention-and-norms": {"STEPS": 2, "WANTED_ON_DIAGONAL": 0.0, "WANTED_HARM": -9.0, "BLOCKS": (2, 8), "SEEDS": 1},
    "language-model-of-your-texts": {"PLAYS": 1, "STEPS": 4, "WIDTH": 16, "BITS_BETTER_THAN_COUNTING": -4.0},
    "publish-and-deploy": {"PAIRS": 2000, "STEPS": 2, "WANTED_EXACT": 0.0, "MODEL": SMALL},
    "transformer-from-scratch": {"STEPS": 20, "WANTED_ACCURACY": 0.0},
    "your-own-language-pair": {"PAIRS": 2000, "STEPS": 2, "WIDTH": 16, "WANTED_BLEU": 0.0},
}
"""What the cell tagged `parameters` of each is replaced by. What is asserted of a trained model is not asserted then;
all else is, and the outputs that are stored have been through everything."""


def read(name: str) -> dict[str, Any]:
    notebook: dict[str, Any] = json.loads(TUTORIALS[name].read_text("utf-8"))
    return notebook


def cells(name: str, kind: str) -> list[dict[str, Any]]:
    return [cell | {"source": "".join(cell["source"])} for cell in read(name)["cells"] if cell["cell_type"] == kind]


def hash_cells(notebook: dict[str, Any]) -> str:
    """As the script that runs them has it."""
    path = REPOSITORY / "docs" / "site" / "run_tutorials.py"
    spec = importlib.util.spec_from_file_location("run_tutorials", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: str = module.hash_cells(notebook)
    return found


def test_all_of_them_are_tested() -> None:
    assert set(SHORT) == set(TUTORIALS)
    assert set(re.findall(r"\]\(tutorials/([\w-]+)\.ipynb\)", GUIDE)) == set(TUTORIALS)


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_cells_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mpl.use("Agg")
    level = logging.getLogger("transformers").level
    names: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, cell in enumerate(cells(name, "code")):
            exec(compile(cell["source"], f"{name}, cell of code {number}", "exec"), names)
            if "parameters" in cell["metadata"].get("tags", []):
                assert set(SHORT[name]) <= set(names)
                names |= SHORT[name]
    finally:
        plt.close("all")
        logging.getLogger("transformers").setLevel(level)
        torch.set_grad_enabled(True)
    assert names["STEPS"] == SHORT[name]["STEPS"]


@pytest.mark.parametrize("name", TUTORIALS)
def test_what_is_stored_is_what_the_cells_put_out(name: str) -> None:
    notebook = read(name)
    assert notebook["metadata"]["paperformer"]["outputs_of"] == hash_cells(notebook), (
        f"the cells were changed after their outputs were stored: python docs/site/run_tutorials.py {name}"
    )
    counts = [cell["execution_count"] for cell in cells(name, "code")]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in cells(name, "code") for output in cell["outputs"]]
    assert {output["output_type"] for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert any("print(" in cell["source"] and cell["outputs"] for cell in cells(name, "code"))
    drawn = sum("image/png" in output.get("data", {}) for output in outputs)
    draws = re.compile(r"plt\.subplots\(|^draw_attention\(", flags=re.MULTILINE)
    assert drawn == sum(bool(draws.search(cell["source"])) for cell in cells(name, "code"))
    assert TUTORIALS[name].stat().st_size < LARGEST
    assert str(REPOSITORY) not in TUTORIALS[name].read_text("utf-8")


def test_the_hash_tells_a_changed_cell(tmp_path: Path) -> None:
    notebook = read("attention-and-norms")
    before = hash_cells(notebook)
    code = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    code["outputs"] = []
    assert hash_cells(notebook) == before
    code["source"] = [*code["source"], "\n"]
    assert hash_cells(notebook) != before


@pytest.mark.parametrize("name", TUTORIALS)
def test_links_lead_to_files(name: str) -> None:
    links = [link for cell in cells(name, "markdown") for link in re.findall(r"\]\(([^)]*)\)", cell["source"])]
    inside = [link.partition("#")[0] for link in links if "://" not in link]
    assert inside
    assert [link for link in inside if not (TUTORIALS[name].parent / link).exists()] == []
