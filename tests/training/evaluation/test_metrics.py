import json
import subprocess
import sys
from pathlib import Path

import pytest

from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.evaluation.metrics import METRICS, score_outputs


def test_bleu_and_chrf_are_those_of_sacrebleu_s_command(tmp_path: Path) -> None:
    hypotheses = ["Ein Hund läuft am Strand entlang.", "Zwei Männer, die reden!", "Das ist „gut“.", "1,5 km weit weg"]
    references = ["Ein Hund rennt am Strand entlang.", "Zwei Männer reden.", "Das ist „gut“.", "1,5 km weit entfernt"]
    (tmp_path / "ref").write_text("\n".join(references) + "\n", "utf-8")
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n", "utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp"), "-w", "4"]
    result = subprocess.run([*command, "-m", "bleu", "chrf"], capture_output=True, text=True, check=True)
    bleu, chrf = json.loads(result.stdout)
    scores = fields_of(score_outputs(hypotheses, references))
    assert round(scores["bleu"]["score"], 4) == bleu["score"]
    assert round(scores["chrf"]["score"], 4) == chrf["score"]
    assert scores["bleu"]["signature"] == bleu["signature"]
    assert 20 < bleu["score"] < 80
    assert (scores["exact_match"], scores["sentences"]) == (25.0, 4)
    assert "case:mixed" in bleu["signature"]


@pytest.mark.parametrize(
    ("name", "better", "worse"),
    [
        ("bleu", 30, 20),
        ("chrf", 60, 50),
        ("exact_match", 9, 1),
        ("loss", 1, 2),
        ("perplexity", 20, 30),
        ("pseudo_perplexity", 20, 30),
        ("masked_accuracy", 40, 30),
        ("exact_spans", 9, 1),
        ("bits_per_byte", 1, 2),
    ],
)
def test_which_of_two_values_is_better(name: str, better: float, worse: float) -> None:
    assert METRICS[name].cost(better) < METRICS[name].cost(worse)


def test_the_direction_of_every_metric_is_tested_above() -> None:
    of_text = {"bleu", "chrf", "exact_match", "loss", "perplexity", "bits_per_byte"}
    assert METRICS.keys() == of_text | {"pseudo_perplexity", "masked_accuracy", "exact_spans"}
