"""lm_eval on our language models, by the commands of docs/evaluation.md: its log-likelihoods are ours."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paperformer import evaluate_text

from .conftest import Saved

pytest.importorskip("lm_eval", reason="lm_eval is not installed: pip install 'paperformer[lm-eval]'")

CHOICES = [
    {"beginning": "A dog runs", "endings": ["on the beach.", "am Strand."], "right": 0},
    {"beginning": "Zwei", "endings": ["men talk.", "Männer reden."], "right": 1},
]
TEXTS = ["A dog runs on the beach. Two men talk.", "Ein Hund läuft am Strand."]
TASKS: dict[str, dict[str, Any]] = {
    "tiny_choices": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{beginning}}",
        "doc_to_choice": "endings",
        "doc_to_target": "right",
        "metric_list": [{"metric": "acc"}],
    },
    "tiny_texts": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "bits_per_byte"}],
    },
}


def nats(lm: Saved, text: str) -> float:
    """What a text costs behind `<s>`, without its end."""
    loss, *_ = evaluate_text(lm.folder, text, end_marks=False)
    return loss.value * loss.count


def run_lm_eval(lm: Saved, task: str, rows: list[Any], folder: Path, monkeypatch: pytest.MonkeyPatch, more: str) -> Any:
    """The log of the command, with what it computed for each sample."""
    from lm_eval.__main__ import cli_evaluate

    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(folder / "rows.jsonl")}}}
    (folder / f"{task}.yaml").write_text(yaml.safe_dump({"task": task, "test_split": "test", **data, **TASKS[task]}))
    arguments = f"pretrained={lm.folder},max_length=64{more},trust_remote_code=True"
    command = ["lm_eval", "--model", "hf", "--model_args", arguments, "--tasks", task, "--include_path", str(folder)]
    command += ["--device", "cpu", "--batch_size", "2", "--log_samples", "--output_path", str(folder / "out")]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(folder / "cache"))
    cli_evaluate()
    (samples,) = (folder / "out").rglob(f"samples_{task}_*.jsonl")
    (results,) = (folder / "out").rglob("results_*.json")
    rows = [json.loads(line) for line in samples.read_text("utf-8").splitlines()]
    return sorted(rows, key=lambda row: row["doc_id"]), json.loads(results.read_text("utf-8"))["results"][task]


def test_choices_are_made_by_our_likelihoods(lm: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, results = run_lm_eval(lm, "tiny_choices", CHOICES, tmp_path, monkeypatch, ",add_bos_token=True")
    right = 0
    for sample, row in zip(samples, CHOICES, strict=True):
        beginning: Any = row["beginning"]
        endings: Any = row["endings"]
        ours = [nats(lm, beginning) - nats(lm, f"{beginning} {ending}") for ending in endings]
        assert [float(answer[0][0]) for answer in sample["resps"]] == pytest.approx(ours, rel=1e-5)
        right += ours.index(max(ours)) == row["right"]
    assert results["acc,none"] == right / 2


def test_rolling_likelihoods_are_ours(lm: Saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples, results = run_lm_eval(lm, "tiny_texts", [{"text": text} for text in TEXTS], tmp_path, monkeypatch, "")
    ours = [nats(lm, text) for text in TEXTS]
    assert [-float(sample["resps"][0][0]) for sample in samples] == pytest.approx(ours, rel=1e-5)
    scores = {score.metric.name: score.value for score in evaluate_text(lm.folder, TEXTS, end_marks=False)}
    assert results["bits_per_byte,none"] == pytest.approx(scores["bits_per_byte"], rel=1e-5)
