from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paperformer.training.recipe.run import RunOptions
from paperformer.training.reporting.progress_state import ProgressState
from paperformer.training.reporting.recorder import STEPS_TO_JUDGE_BY, Recorder
from paperformer.training.run_folder import RunFolder


@pytest.mark.parametrize(("max_steps", "hours"), [(3_610, None), (36_010, "10 hours")])
def test_whoever_has_hours_to_wait_is_told_after_some_steps(
    max_steps: int, hours: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = RunFolder(RunOptions(name="any", output_dir=str(tmp_path)))
    folder.path.mkdir()
    accelerator: Any = SimpleNamespace(is_main_process=True, num_processes=1, device=torch.device("cpu"), trackers=[])
    progress = ProgressState(seconds=50.0)  # of before it was resumed
    with Recorder(accelerator, folder, progress, max_steps, None, None) as recorder:
        for _ in range(STEPS_TO_JUDGE_BY):
            progress.step += 1
            progress.seconds += 1.0
            recorder.step_done(0.1, 1.0, dict)
    said = capsys.readouterr().err
    assert ("note: at this speed" in said) == (hours is not None)
    if hours is not None:
        assert f"the 36,000 steps that are left take {hours}; a smaller model" in said
