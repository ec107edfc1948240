"""Our metrics as modules of the evaluate library: loaded from the package, without a network."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import evaluate
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER

from paperformer import InputError, evaluate_text, metric_path
from paperformer.metrics import NAMES

from .conftest import Saved

PREDICTIONS = ["A dog runs on a beach.", "Two men are talking!", "Das ist „gut“."]
STREAMS = [
    ["A dog runs on the beach.", "Two men talk.", "Das ist „gut“."],
    ["On the beach runs a dog.", "Two men are talking.", "Es ist gut."],
]
REFERENCES = [list(texts) for texts in zip(*STREAMS, strict=True)]


@pytest.fixture(autouse=True)
def without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    for name in ("socket", "create_connection", "getaddrinfo"):
        monkeypatch.setattr(socket, name, refuse)


def load(name: str, *configuration: str, folder: Path) -> Any:
    return evaluate.load(metric_path(name), *configuration, cache_dir=str(folder))


def test_values_and_signatures_are_sacrebleus(tmp_path: Path) -> None:
    """All at once, of several references, in two batches."""
    configurations = {"bleu": [], "chrf": [], "ter": [], "exact_match": [], "chrf++": ["chrf++"]}
    modules = [load(name.rstrip("+"), *given, folder=tmp_path) for name, given in configurations.items()]
    together = evaluate.combine(modules)
    together.add_batch(predictions=PREDICTIONS[:2], references=REFERENCES[:2])
    together.add_batch(predictions=PREDICTIONS[2:], references=REFERENCES[2:])
    found = together.compute()
    for name, metric in {"bleu": BLEU(), "chrf": CHRF(), "chrf++": CHRF(word_order=2), "ter": TER()}.items():
        assert found[name] == pytest.approx(metric.corpus_score(PREDICTIONS, STREAMS).score, rel=1e-12)
        assert found[f"{name}_signature"] == str(metric.get_signature())
    assert found["exact_match"] == pytest.approx(100 / 3)
    path = evaluate.save(tmp_path / "result.json", **found)
    assert json.loads(path.read_text("utf-8"))["bleu_signature"] == found["bleu_signature"]


def test_options(tmp_path: Path) -> None:
    upper = [text.upper() for text in PREDICTIONS]
    chrf = load("chrf", folder=tmp_path)
    one = chrf.compute(predictions=upper, references=STREAMS[0], word_order=2, lowercase=True)
    metric = CHRF(word_order=2, lowercase=True)
    assert one["chrf++"] == pytest.approx(metric.corpus_score(upper, STREAMS[:1]).score)
    bleu = load("bleu", folder=tmp_path)
    found = bleu.compute(predictions=PREDICTIONS, references=STREAMS[0], tokenizer="char")
    assert re.search(r"tok:char\|", found["bleu_signature"])


def test_perplexity_is_that_of_evaluate_text(lm: Saved, tmp_path: Path) -> None:
    perplexity = load("perplexity", folder=tmp_path)
    perplexity.add_batch(predictions=PREDICTIONS)
    found = perplexity.compute(model=str(lm.folder), context_length=16, stride=4)
    scores = {s.metric.entry: s for s in evaluate_text(lm.folder, PREDICTIONS, context_length=16, stride=4)}
    counts = {"tokens": scores["loss"].count, "words": 13, "bytes": sum(len(text.encode()) for text in PREDICTIONS)}
    signature = {"perplexity_signature": "context:16|stride:4"}
    assert found == {name: score.value for name, score in scores.items()} | counts | signature
    assert found["token_perplexity"] > 1


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    def refused(name: str, references: list[Any], **options: Any) -> str:
        module = load(name, folder=tmp_path)
        with pytest.raises(InputError) as error:
            module.compute(predictions=PREDICTIONS[: len(references)], references=references, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    uneven = "text 2 has 1 references, and another 2; all must have as many"
    assert refused("bleu", [["a", "b"], ["c"]]) == uneven
    assert refused("chrf", ["a"], word_order=1) == "word_order is 1; it must be 0 (chrF) or 2 (chrF++)"
    assert refused("bleu", ["a"], tokenizer="no").startswith("bleu_tokenizer is no; it must be one of ")
    with pytest.raises(InputError, match="there is no metric blue; did you mean bleu"):
        metric_path("blue")


def test_every_module_is_a_file() -> None:
    assert all(Path(metric_path(name)).is_file() for name in NAMES)
