import math
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from paperformer.training.console.input_error import InputError
from paperformer.training.evaluation.passages import PassageLosses
from paperformer.training.evaluation.significance import TestName, compare_losses, compare_systems, correct_p_values

RNG = random.Random(3)
REFERENCES = [" ".join(RNG.choices("abcdefgh", k=RNG.randint(4, 12))) for _ in range(60)]


def damaged(share: float) -> list[str]:
    rng = random.Random(share)
    return [" ".join(word if rng.random() > share else "x" for word in line.split()) for line in REFERENCES]


BASELINE, SYSTEM = damaged(0.3), damaged(0.2)


@pytest.mark.parametrize(("test", "option"), [("bootstrap", "--paired-bs"), ("randomisation", "--paired-ar")])
def test_p_values_are_those_of_sacrebleu_s_command(test: TestName, option: str, tmp_path: Path) -> None:
    for name, lines in {"reference": REFERENCES, "baseline": BASELINE, "system": SYSTEM}.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n", "utf-8")
    command = [sys.executable, "-m", "sacrebleu", "reference", "-i", "baseline", "system", option, "-m", "bleu", "chrf"]
    result = subprocess.run(
        [*command, "-f", "text", "-w", "6"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    baseline, system, p_values = (
        [float(figure) for figure in re.findall(pattern, line)]
        for pattern, line in zip(
            (r"│ +(\d\S+)", r"│ +(\d\S+)", r"p = (\S+)\)"), re.findall(r"│.*│", result.stdout)[1:], strict=True
        )
    )
    compared = compare_systems(BASELINE, SYSTEM, [REFERENCES], test=test)
    for index, comparison in enumerate(compared[:2]):
        assert round(comparison.baseline, 6) == baseline[index]
        assert round(comparison.system, 6) == system[index]
        assert round(comparison.p_value, 4) == p_values[index]
        assert 0 < comparison.p_value < 0.05
        assert comparison.signature in result.stdout


def test_the_verdict_follows_the_direction_of_the_metric() -> None:
    forward = {comparison.metric.name: comparison for comparison in compare_systems(BASELINE, SYSTEM, [REFERENCES])}
    backward = {comparison.metric.name: comparison for comparison in compare_systems(SYSTEM, BASELINE, [REFERENCES])}
    assert forward["ter"].difference < 0 < forward["bleu"].difference
    for name in ("bleu", "chrf", "chrf++", "ter"):
        assert (forward[name].verdict, backward[name].verdict) == ("better", "worse")
        assert forward[name].difference == -backward[name].difference


@given(st.lists(st.floats(0, 1), max_size=8))
def test_p_values_are_corrected_as_holm_has_it(p_values: list[float]) -> None:
    """Holm (1979) rejects one after the other, from the lowest on, as long as p <= level / (tests that are left)."""
    corrected = correct_p_values(p_values)
    for level in (0.01, 0.05, 0.3, *corrected):
        rejected, left = set(), sorted(range(len(p_values)), key=lambda test: p_values[test])
        while left and (p_values[left[0]] * len(left) <= level or level == 1):
            rejected.add(left.pop(0))
        assert {test for test, p_value in enumerate(corrected) if p_value <= level} == rejected


def test_a_system_does_not_differ_from_itself() -> None:
    for comparison in compare_systems(SYSTEM, SYSTEM, [REFERENCES]):
        assert comparison.difference == 0
        assert comparison.p_value > 0.9
        assert comparison.verdict == "no significant difference"


def test_too_little_memory_is_said_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10_000_000))
    with pytest.raises(InputError, match="the bootstrap test of 60 sentences takes 0 GB of memory, which are not free"):
        compare_systems(BASELINE, SYSTEM, [REFERENCES])


def passages(nats: NDArray[np.float64], sizes: NDArray[np.int64], *, masked: bool = False) -> PassageLosses:
    return PassageLosses(nats=nats, tokens=sizes, bytes=None if masked else sizes * 4, sha256="")


@pytest.mark.parametrize("masked", [False, True])
def test_losses_of_passages(masked: bool) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.integers(200, 260, size=80)
    easy = sizes * rng.normal(2.0, 0.4, size=80)  # passages differ by far more than the two systems do
    hard = easy + sizes * rng.normal(0.02, 0.05, size=80)
    good, bad = (passages(nats, sizes, masked=masked) for nats in (easy, hard))
    forward, backward = compare_losses(bad, good), compare_losses(good, bad)
    assert (forward.verdict, backward.verdict) == ("better", "worse")
    assert forward.p_value == backward.p_value < 0.05
    unit = sizes.sum() if masked else sizes.sum() * 4 * math.log(2)
    assert (forward.system, forward.baseline) == (pytest.approx(easy.sum() / unit), pytest.approx(hard.sum() / unit))
    assert compare_losses(good, good).p_value == 1.0


def test_equal_systems_are_told_apart_one_time_in_twenty() -> None:
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(60):
        sizes = rng.integers(200, 260, size=60)
        first, second = (passages(sizes * rng.normal(2.0, 0.3, size=60), sizes) for _ in range(2))
        found += compare_losses(first, second).is_significant
    assert 1 <= found <= 8  # 3 expected
