"""BLEU of sacreBLEU, for the evaluate library.

The evaluate library copies this file and loads the copy: it imports the package by its name.
"""

from collections.abc import Sequence
from typing import Any

from paperformer.metrics import output_metric


class Bleu(output_metric.OutputMetric):
    """BLEU, 0 to 100, with its signature."""

    description = "BLEU of a whole corpus, 0 to 100, by sacreBLEU: raw texts, and a signature that says how."
    citation = "Papineni et al. 2002; Post 2018, arXiv 1804.08771"
    more_inputs = "    tokenizer: what cuts words for counting: 13a, zh, ja-mecab, ko-mecab, char, flores200 or none.\n"

    def _compute(
        self, predictions: Sequence[str], references: Sequence[Any], lowercase: bool = False, tokenizer: str = "13a"
    ) -> dict[str, Any]:
        return self._scored("bleu", predictions, references, lowercase=lowercase, bleu_tokenizer=tokenizer)
