"""TER of sacreBLEU, for the evaluate library.

The evaluate library copies this file and loads the copy: it imports the package by its name.
"""

from collections.abc import Sequence
from typing import Any

from paperformer.metrics import output_metric


class Ter(output_metric.OutputMetric):
    """Translation edit rate in percent, lower is better, with its signature."""

    description = "Translation edit rate of a whole corpus in percent, by sacreBLEU; lower is better."
    citation = "Snover et al. 2006"

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Any], lowercase: bool = False
    ) -> dict[str, Any]:
        return self._scored("ter", predictions, references, lowercase=lowercase)
