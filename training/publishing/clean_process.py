"""Whether a model folder works where paperformer is not installed."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from transformers import PreTrainedModel

from ..console.input_error import InputError
from ..console.progress import say
from . import load_alone

TOLERANCE = 1e-3
"""Largest difference of a logit, relative to the largest: the same code on the same machine differs by less."""


def check_loads_alone(folders: Sequence[Path], models: Sequence[PreTrainedModel]) -> None:
    """Loads model folders with transformers and their own code only, in a process that cannot import paperformer.

    It has no network, no access token, no GPU, and no cached code.

    Args:
        folders: those of finished models.
        models: the same, as the installed code loads them; on the CPU.

    Raises:
        InputError: if one cannot be loaded and used there, or computes something else.
    """
    say(f"loading {', '.join(map(str, folders))} where paperformer is not installed")
    for folder, model, result in zip(folders, models, _load(folders), strict=True):
        if result["error"] is not None:
            raise InputError(
                f"{folder} cannot be used where paperformer is not installed: {result['error']}; save the model again"
            )
        own = load_alone.read_logits(model)
        scale = max(1.0, *map(abs, own))
        difference = max(abs(a - b) for a, b in zip(own, result["logits"], strict=True))
        if not difference <= TOLERANCE * scale or not math.isfinite(difference):
            raise InputError(
                f"{folder} computes something else with its own code than with paperformer's (logits differ by "
                f"{difference:.2g}): the code is another version's; save the model again"
            )


def _load(folders: Sequence[Path]) -> list[dict[str, Any]]:
    """What load_alone.py finds."""
    secrets = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if name not in secrets}
    with TemporaryDirectory() as home:
        environment |= {"HF_HUB_OFFLINE": "1", "HF_HOME": home, "HF_MODULES_CACHE": home, "CUDA_VISIBLE_DEVICES": ""}
        reader, writer = os.pipe()
        with os.fdopen(reader, encoding="utf-8") as report:
            process = subprocess.Popen(
                [sys.executable, "-I", load_alone.__file__, *(str(folder.resolve()) for folder in folders)],
                env=environment | {"REPORT_TO": str(writer)},
                cwd=home,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[writer],
                text=True,
            )
            os.close(writer)
            _, said = process.communicate()
            results = report.read()
    if not results:
        last = said.strip().splitlines()[-1:] or [f"exit code {process.returncode}"]
        raise InputError(f"the process that loads {folders[0]} without paperformer failed: {last[0]}")
    found: list[dict[str, Any]] = json.loads(results)
    return found
