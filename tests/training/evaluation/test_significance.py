import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.evaluation.significance import TestName, compare_systems

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


def test_a_system_does_not_differ_from_itself() -> None:
    for comparison in compare_systems(SYSTEM, SYSTEM, [REFERENCES]):
        assert comparison.difference == 0
        assert comparison.p_value > 0.9
        assert comparison.verdict == "no significant difference"


def test_too_little_memory_is_said_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10_000_000))
    with pytest.raises(InputError, match="the bootstrap test of 60 sentences takes 0 GB of memory, which are not free"):
        compare_systems(BASELINE, SYSTEM, [REFERENCES])
