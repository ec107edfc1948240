"""Exact match, for the evaluate library.

The evaluate library copies this file and loads the copy: it imports the package by its name.
"""

from collections.abc import Sequence
from typing import Any

from paperformer.metrics import output_metric


class ExactMatch(output_metric.OutputMetric):
    """The share of outputs that equal a reference, in percent."""

    description = "The share of outputs that equal one of their references, in percent."

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Any], lowercase: bool = False
    ) -> dict[str, Any]:
        return self._scored("exact_match", predictions, references, lowercase=lowercase)
