"""COMET (Rei et al. 2020), by its own program: it wants older libraries than ours, hence an environment of its own."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ..console.input_error import InputError


def find_comet(program: str) -> str:
    """The path of the program.

    Raises:
        InputError: if there is none.
    """
    if (found := shutil.which(program)) is None:
        raise InputError(
            f"--comet: there is no program {program}; COMET needs an environment of its own, such as: "
            "pipx install unbabel-comet, which makes comet-score"
        )
    return found


def score_with_comet(
    program: str, sources: Sequence[str] | None, outputs: Sequence[str], references: Sequence[str]
) -> float:
    """The system score that unbabel-comet's program gives with its default model.

    Raises:
        InputError: if there are no sources, or the program fails; the message is its last line.
    """
    if sources is None:
        raise InputError("--comet needs the sources: give --source FILE")
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, lines in (("source", sources), ("hypotheses", outputs), ("reference", references)):
            path = Path(folder) / name
            path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
            paths.append(str(path))
        command = [program, "-s", paths[0], "-t", paths[1], "-r", paths[2], "--quiet", "--only_system"]
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = (finished.stdout.strip() or finished.stderr.strip() or "it said nothing").splitlines()
    said = re.search(r"score:?\s+(-?[\d.]+)$", lines[-1])
    if finished.returncode or said is None:
        raise InputError(f"--comet: {program} failed: {lines[-1]}")
    return float(said[1])
