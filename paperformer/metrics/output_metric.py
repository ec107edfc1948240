"""What the metrics that compare outputs with references have in common as modules of the evaluate library."""

from collections.abc import Sequence
from typing import Any

import evaluate
from datasets import Features, Value
from datasets import Sequence as ListOf

from ..training.console.input_error import InputError
from ..training.evaluation.metrics import METRICS, Metric, ScoringOptions, score_outputs

INPUTS = """
Args:
    predictions: texts as they were put out.
    references: a raw text for each, or a list of several.
    lowercase: whether to compare without regard to case.
"""


class OutputMetric(evaluate.Metric):
    """A metric of `training.evaluation.metrics`; a module is a class that says which."""

    description = ""
    citation = ""
    more_inputs = ""
    """What `compute` takes beside `INPUTS`."""

    def _info(self) -> evaluate.MetricInfo:
        text = Value("string")
        return evaluate.MetricInfo(
            description=self.description,
            citation=self.citation,
            inputs_description=INPUTS + self.more_inputs,
            features=[
                Features({"predictions": text, "references": ListOf(text)}),
                Features({"predictions": text, "references": text}),
            ],
        )

    def _scored(
        self, metric: str, predictions: Sequence[str], references: Sequence[Any], **options: Any
    ) -> dict[str, Any]:
        """The value by the metric's name, and its signature."""
        return scores_of(METRICS[metric], predictions, references, **options)


def scores_of(
    metric: Metric, predictions: Sequence[str], references: Sequence[str] | Sequence[Sequence[str]], **options: Any
) -> dict[str, Any]:
    """The value and the signature of a metric, by names that no other metric has.

    Args:
        options: fields of `ScoringOptions`.

    Raises:
        InputError: if texts do not have the same number of references each, or an option cannot be.
    """
    streams = [[text] if isinstance(text, str) else list(text) for text in references]
    numbers = {len(texts) for texts in streams}
    if len(numbers) > 1 or 0 in numbers:
        number = min(numbers)
        place = [len(texts) for texts in streams].index(number) + 1
        raise InputError(f"text {place} has {number} references, and another {max(numbers)}; all must have as many")
    try:
        chosen = ScoringOptions(**options)
    except ValueError as error:
        raise InputError(str(error)) from error
    (score,) = score_outputs(predictions, list(zip(*streams, strict=True)), chosen, [metric])
    found = {metric.name: score.value, f"{metric.name}_signature": score.signature}
    return {name: value for name, value in found.items() if value != ""}
