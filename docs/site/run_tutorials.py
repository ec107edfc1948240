"""Runs the notebooks of docs/tutorials and stores what they put out: python docs/site/run_tutorials.py [NAME ...]

A notebook is stored with its outputs, so that it can be read where it is not run, and with a hash of the cells that
they came from: `tests/test_tutorials.py` refuses outputs of other cells. What is said on standard error is progress,
which is of no use afterwards; it is left out.
"""

import hashlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

TUTORIALS = Path(__file__).parents[1] / "tutorials"
HASH = "outputs_of"
"""Under `paperformer` of a notebook's metadata: the hash of the cells whose outputs it has."""


def hash_cells(notebook: dict[str, Any]) -> str:
    """SHA-256 of the source of all cells of code."""
    sources = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return hashlib.sha256(json.dumps(sources).encode()).hexdigest()


def run(path: Path) -> None:
    """Runs a notebook in a folder of its own, and stores its outputs in it.

    Raises:
        nbclient.exceptions.CellExecutionError: if a cell fails; the notebook is as it was then.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(notebook, timeout=3600, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it was run
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    notebook.metadata["language_info"] = {"name": "python"}  # without the version of the interpreter
    notebook.metadata["paperformer"] = {HASH: hash_cells(notebook)}
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


def main(names: list[str]) -> None:
    """Runs the notebooks of these names, or all of them."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        if not names or path.stem in names:
            print(path.stem, flush=True)
            run(path)


if __name__ == "__main__":
    main(sys.argv[1:])
