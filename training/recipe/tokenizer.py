"""The vocabulary of a run."""

from dataclasses import dataclass, field

from ...tokenization.algorithms import AlgorithmName
from ...tokenization.train import smallest_vocab_size
from .checks import check_at_least, check_fraction


@dataclass(kw_only=True)
class TokenizerOptions:
    """The vocabulary."""

    path: str | None = None
    """Use this saved tokenizer instead of training one."""

    algorithm: AlgorithmName = "byte_bpe"
    """How text is split: byte_bpe (Radford et al. 2019), bpe (on characters, with bytes for rare ones; Sennrich et al.
    2016), unigram (Kudo 2018), wordpiece (Schuster and Nakajima 2012; loses white space), or characters."""

    separate: bool = False
    """Translation only: a vocabulary for each language instead of a joint one."""

    vocab_size: int = 8000
    """Entries of the vocabulary, special tokens included; joint for both languages, or of each."""

    min_frequency: int = 2
    """How often a pair of symbols must occur to be merged."""

    pad_vocab_to_multiple_of: int = 8
    """The model's embeddings get unused rows up to a multiple of this, because matrix units are faster for it: 8, or 64
    for large models."""

    user_symbols: list[str] = field(default_factory=list)
    """Strings that are always one token, such as language tags: '[<2de>,<2fr>]'."""

    split_digits: bool = False
    """Make every digit a token of its own, so that numbers are read and written digit by digit."""

    bpe_dropout: float = 0.0
    """Probability of skipping a merge while training, so that words are seen in several segmentations (Provilkov et al.
    2020, arXiv 1910.13267). 0.1 often helps small data sets; the saved tokenizer stays deterministic."""

    unigram_alpha: float = 0.0
    """For unigram: sample segmentations while training, from their probabilities to this power (Kudo 2018, arXiv
    1804.10959; 0.2 there); 0 takes the likeliest one."""

    def __post_init__(self) -> None:
        check_at_least(self, smallest_vocab_size(self.algorithm, self.user_symbols), "vocab_size")
        check_at_least(self, 1, "min_frequency", "pad_vocab_to_multiple_of")
        check_at_least(self, 0, "unigram_alpha")
        check_fraction(self, "bpe_dropout")
        if self.bpe_dropout > 0 and self.algorithm not in ("byte_bpe", "bpe"):
            raise ValueError(f"bpe_dropout is {self.bpe_dropout}; with algorithm {self.algorithm} it must be 0")
        if self.unigram_alpha > 0 and self.algorithm != "unigram":
            raise ValueError(f"unigram_alpha is {self.unigram_alpha}; with algorithm {self.algorithm} it must be 0")
