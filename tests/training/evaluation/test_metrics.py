import json
import subprocess
import sys
from pathlib import Path

from paperformer.training.evaluation.evaluation_file import fields_of
from paperformer.training.evaluation.metrics import score_outputs

SIZE = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
TEXT = "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer."


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
