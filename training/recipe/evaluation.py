"""How progress is judged."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from .checks import check_at_least

BleuTokenizer = Literal["13a", "none", "intl", "char", "zh", "ja-mecab", "ko-mecab", "spm", "flores101", "flores200"]
"""How sacreBLEU divides raw text into words before it counts n-grams."""


@dataclass(kw_only=True)
class EvaluationOptions:
    """How progress is judged and the final model is chosen and scored."""

    every_steps: int = 1000
    """Validate and save a checkpoint every that many steps, and at the end."""

    select_by: str = "loss"
    """Validation score by which the final weights are chosen: loss, or of seq2seq bleu, chrf or exact_match, which
    translate greedily."""

    patience: int = 0
    """Stop when the score has not improved for that many validations in a row; 0 goes on to the last step."""

    min_improvement: float = 0.0
    """By how much a score must be better than the best before, to count as an improvement for the patience."""

    average_checkpoints: int = 0
    """Also consider the mean of the weights of that many checkpoints (Vaswani et al. 2017, section 6.1)."""

    average: Literal["last", "best"] = "last"
    """Which checkpoints are averaged: the last ones or those of best score."""

    num_beams: int = 5
    """Beam size of the final translations, and of the saved generation settings."""

    length_penalty: float = 1.0
    """Exponent of the length by which a beam's score is divided; of no effect with one beam."""

    bleu_tokenizer: BleuTokenizer = "13a"
    """How sacreBLEU divides translations and references into words: 13a for most languages; zh, ja-mecab, ko-mecab,
    char or flores200 where words are not separated; none for text that is tokenised already, of which scores compare
    with nothing else."""

    lowercase: bool = False
    """Score translations without regard to case."""

    samples: int = 10
    """Sample outputs for the card."""

    validation_samples: int = 2
    """Sample outputs at each validation, of the same inputs every time: shown, and kept in samples.jsonl."""

    @property
    def beam_search(self) -> dict[str, Any]:
        """What `generate()` is to be told. A single beam has nothing to be compared with by its length, and
        transformers saves no settings that have one beam and a penalty."""
        return {"num_beams": self.num_beams, "length_penalty": self.length_penalty if self.num_beams > 1 else 1.0}

    def __post_init__(self) -> None:
        check_at_least(self, 1, "every_steps", "num_beams")
        check_at_least(self, 0, "patience", "min_improvement", "average_checkpoints", "samples", "validation_samples")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty is {self.length_penalty}; it must be a finite number")
