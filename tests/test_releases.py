"""What an earlier release has written loads, computes and goes on as it did then (docs/compatibility.md).

Here with the present code; `paperformer/test_remote_code.py` has the same folders with the code that lies in them.
"""

import json
import shutil
from pathlib import Path

import pytest

import paperformer
from paperformer.cli import main

from .released_models import (
    FIXTURES,
    RELEASED,
    RELEASED_RUNS,
    RESUME,
    assert_as_released,
    end_of_run,
    outputs_of_release,
)


def of(folder: Path) -> str:
    return f"{folder.parent.name}-{folder.name}"


def test_this_release_is_among_them() -> None:
    release = FIXTURES / f"release-{paperformer.__version__}"
    assert {folder.name for folder in RELEASED + RELEASED_RUNS if folder.parent == release} == {
        "seq2seq",
        "lm",
        "encoder",
        "run",
    }


@pytest.mark.parametrize("folder", RELEASED, ids=of)
def test_a_model_computes_what_it_did(folder: Path) -> None:
    found = outputs_of_release(folder)
    assert found["module"].startswith("paperformer.")  # and not the copy in the folder
    assert_as_released(folder, found)


@pytest.mark.parametrize("folder", RELEASED_RUNS, ids=of)
def test_a_run_goes_on_as_it_would_have(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(shutil.copytree(folder, tmp_path / "run"))
    main(RESUME)
    found, expected = end_of_run(Path("trained/run")), json.loads(Path("expected_end.json").read_text("utf-8"))
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-5)
    assert found["norms"] == pytest.approx(expected["norms"], rel=1e-4)
