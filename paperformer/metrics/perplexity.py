"""Perplexity of texts by any model, for the evaluate library; see `paperformer.evaluate_text`.

The evaluate library copies this file and loads the copy: it imports the package by its name.
"""

from collections.abc import Sequence
from typing import Any

import evaluate
from datasets import Features, Value

from paperformer import evaluate_text

INPUTS = """
Args:
    predictions: texts, each a document.
    model: a model's folder or name, a run, or a model that has been loaded (with tokenizer=...).
    options: those of `paperformer.evaluate_text`: context_length, stride, end_marks, ...
"""


class Perplexity(evaluate.Metric):
    """All that `evaluate_text` says of some texts, by name, with what it was counted over and its signature."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Perplexity of whole texts a token, a word and a byte, in windows that overlap.",
            citation="",
            inputs_description=INPUTS,
            features=Features({"predictions": Value("string")}),
        )

    def _compute(self, predictions: Sequence[str], model: Any, **options: Any) -> dict[str, Any]:
        scores = evaluate_text(model, list(predictions), **options)
        values = {score.metric.entry: score.value for score in scores}
        counts = {score.metric.over: score.count for score in scores}
        return {**values, **counts, "perplexity_signature": scores[0].signature}
