"""Where the text comes from, and how each objective learns from it."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from ..console.input_error import InputError
from .checks import check_at_least, check_fraction, check_positive
from .evaluation import EvaluationOptions
from .optimization import Optimization
from .tokenizer import TokenizerOptions

SourceSpec = str | dict[str, Any] | list[str | dict[str, Any]]
"""What names sources of text: a name, the fields of a `Source`, or a list of those."""


class OtherSections(Protocol):
    """What of a recipe has to agree with its data."""

    tokenizer: TokenizerOptions
    model: dict[str, Any]
    optimization: Optimization
    evaluation: EvaluationOptions


@dataclass(kw_only=True)
class Corpora:
    """Where the text of the three splits comes from."""

    dataset: str | None = None
    """What the splits are parts of: the name of a data set on the Hub, a local folder, or data that ships with the
    package: built-in:cldr (localised expressions of Unicode CLDR, for any pair of its locales) or built-in:shakespeare
    (the plays, with whole plays held out). Without it, splits are paths."""

    config: str | None = None
    """Configuration of the data set on the Hub, if it has several."""

    train: SourceSpec = "train"
    """Training split: its name in the data set, or a path, with or without its ending (see docs/data.md); or a mapping
    with the fields of a source; or a list of several sources."""

    validation: SourceSpec = "validation"
    """Validation split, on which everything is chosen; named as the training split is."""

    test: SourceSpec = "test"
    """Test split, on which the chosen model is scored once."""

    hold_out: float = 0.0
    """Instead of a validation and a test split: the share of the training text, for example 0.02, that is held out for
    each of them. Which sentences these are follows from their words, so that text that is added moves none."""

    temperature: float = 1.0
    """Of several training sources, an epoch has a share proportional to weight * rows ** (1 / temperature): 1 takes
    them as they are, 5 brings small ones up (Arivazhagan et al. 2019, arXiv 1907.05019)."""

    on_bad_line: Literal["stop", "skip"] = "stop"
    """What to do with a line that cannot be used (not UTF-8, too few columns, ...): stop and name it, or leave it out
    and count it by reason."""

    streaming: bool = False
    """Read, clean and tokenise the training text anew each epoch instead of once: for text that is larger than the
    disk. It is shuffled within a buffer only."""

    shuffle_buffer: int = 100_000
    """Rows of text that are in memory at once when streaming."""

    workers: int = 0
    """Processes that put batches together beside the training; 0 does it in between."""

    cache_dir: str | None = None
    """Folder for clean and tokenised text, which may be deleted between runs; by default OUTPUT_DIR/.cache."""

    def __post_init__(self) -> None:
        check_at_least(self, 1, "shuffle_buffer")
        if not 0 <= self.hold_out <= 0.25:
            raise ValueError(f"hold_out is {self.hold_out}; it must be from 0 to 0.25")
        if self.hold_out > 0 and (self.validation, self.test) != ("validation", "test"):
            raise ValueError(
                f"hold_out is {self.hold_out}; with it, validation and test come from the training text: leave them out"
            )
        check_at_least(self, 0, "workers")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; it must be greater than 0")
        if self.streaming and self.temperature != 1:
            raise ValueError(
                f"temperature is {self.temperature}; with streaming it must be 1, since sizes are not known: give the "
                "sources weights"
            )

    def check_agreement(self, recipe: OtherSections) -> None:
        """Checks what no section of a recipe can see by itself.

        Raises:
            InputError: naming the field.
        """


@dataclass(kw_only=True)
class ParallelData(Corpora):
    """Sentence pairs to learn translation from."""

    source_language: str
    """Code of the source language: the name of its column or the ending of its files."""

    target_language: str
    """Code of the target language."""

    max_length: int = 128
    """Longest sentence in tokens; longer inputs are truncated."""

    too_long: Literal["drop", "truncate"] = "drop"
    """What happens to training pairs of which a side is longer than max_length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "max_length")  # a token and the end of the sentence

    def check_agreement(self, recipe: OtherSections) -> None:
        _check_length("max_length", self.max_length, recipe)
        if recipe.tokenizer.separate and recipe.model["share_embeddings"]:
            raise InputError("tokenizer.separate is true; model.share_embeddings must be false with it")


@dataclass(kw_only=True)
class RunningText(Corpora):
    """Text of one language, in documents of any length."""

    language: str | None = "en"
    """Code of the text's language, for its card and its cleaning; null if it is not known."""

    text_column: str = "text"
    """Column that holds the text, in tables and data sets of the Hub."""

    documents: Literal["joined", "each", "blank_line"] | None = None
    """Whether the rows of a source run on as one document, each is a document, or blank lines stand between documents
    (of text files). By default a text file is one document, and so is every row of anything else."""

    context_length: int = 256
    """Tokens a training sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(self, 2, "context_length")  # the first token is not predicted

    def check_agreement(self, recipe: OtherSections) -> None:
        _check_length("context_length", self.context_length, recipe)
        batch, selects_by, tokenizer = (
            recipe.optimization.tokens_per_batch,
            recipe.evaluation.select_by,
            recipe.tokenizer,
        )
        if batch < self.context_length:
            raise InputError(
                f"optimization.tokens_per_batch is {batch}; it must be at least data.context_length "
                f"({self.context_length})"
            )
        if selects_by != "loss":
            raise InputError(f"evaluation.select_by is '{selects_by}'; a language model is chosen by its 'loss'")
        if tokenizer.separate:
            raise InputError("tokenizer.separate is true; a language model has one vocabulary")
        for name in ("bpe_dropout", "unigram_alpha"):
            if (value := getattr(tokenizer, name)) > 0:
                raise InputError(f"tokenizer.{name} is {value}; it is for translation, and must be 0")


@dataclass(kw_only=True)
class TextData(RunningText):
    """Running text to learn a language model from."""

    separate_documents: bool = False
    """Let no token attend to another document of the same training sequence."""


@dataclass(kw_only=True)
class MaskedTextData(RunningText):
    """Running text to learn an encoder from, by filling in masked tokens."""

    mask_probability: float = 0.15
    """Share of the tokens to predict (Devlin et al. 2019, section 3.1; Wettig et al. 2023, arXiv 2202.08005, find 0.4
    better for large models)."""

    pseudo_perplexity_tokens: int = 2000
    """Of how many tokens, at random places, each split's pseudo-perplexity is estimated: each costs a pass of its own.
    0 leaves it out."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "mask_probability")
        check_fraction(self, "mask_probability")
        check_at_least(self, 0, "pseudo_perplexity_tokens")


@dataclass(kw_only=True)
class CorruptedTextData(RunningText):
    """Running text to learn an encoder-decoder from, by writing down the spans that were dropped from it."""

    noise_density: float = 0.15
    """Share of the tokens to drop (Raffel et al. 2020, section 3.3.4)."""

    mean_span_length: float = 3.0
    """Of the dropped spans, in tokens."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "noise_density")
        check_fraction(self, "noise_density")
        check_at_least(self, 1, "mean_span_length")
        check_at_least(self, 4, "context_length")  # a kept token, a sentinel, and the end: a source at its shortest


def _check_length(name: str, length: int, recipe: OtherSections) -> None:
    longest = recipe.model["max_position_embeddings"]
    if length > longest:
        raise InputError(f"data.{name} is {length}; it must be at most model.max_position_embeddings ({longest})")
