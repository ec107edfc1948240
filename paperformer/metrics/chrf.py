"""chrF and chrF++ of sacreBLEU, for the evaluate library.

The evaluate library copies this file and loads the copy: it imports the package by its name.
"""

from collections.abc import Sequence
from typing import Any

from paperformer.metrics import output_metric
from paperformer.training.console.input_error import InputError

METRIC_OF_ORDER = {0: "chrf", 2: "chrf++"}


class Chrf(output_metric.OutputMetric):
    """chrF, 0 to 100, with its signature; chrF++ with word_order 2, or loaded as configuration `chrf++`."""

    description = "chrF of a whole corpus, 0 to 100, by sacreBLEU: raw texts, and a signature that says how."
    citation = "Popović 2015; Popović 2017 for chrF++"
    more_inputs = "    word_order: 0 for chrF, 2 for chrF++, which counts words and pairs of them as well.\n"

    def _compute(
        self,
        predictions: Sequence[str],
        references: Sequence[Any],
        lowercase: bool = False,
        word_order: int | None = None,
    ) -> dict[str, Any]:
        order = word_order if word_order is not None else 2 if self.config_name == "chrf++" else 0
        if order not in METRIC_OF_ORDER:
            raise InputError(f"word_order is {order}; it must be 0 (chrF) or 2 (chrF++)")
        return self._scored(METRIC_OF_ORDER[order], predictions, references, lowercase=lowercase)
