"""Recipes: typed options of a training run, read from YAML and overridden on the command line.

Each field's docstring is its `--help` text. The `model` section holds the fields of the model's own configuration class
(`PaperformerSeq2SeqConfig` or `PaperformerLMConfig`), which documents them.
"""

import argparse
import math
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar, get_args

import yaml
from huggingface_hub.errors import HFValidationError, StrictDataclassError
from huggingface_hub.utils import validate_repo_id
from jsonargparse import ActionConfigFile, ArgumentParser, set_parsing_settings
from transformers import PreTrainedConfig

from ..tokenization.train import AlgorithmName, smallest_vocab_size
from .data.cleaning import Cleaning
from .input_error import InputError
from .recipe_file import Fields, RecipeFile, explain, spell_out_flags, wrong_value

set_parsing_settings(docstring_parse_attribute_docstrings=True)


@dataclass(kw_only=True)
class RunOptions:
    """What to call the run, where it goes, and what happens to its result."""

    name: str
    """Name of the run, which is also its folder's."""

    output_dir: str = "runs"
    """Folder of all runs; this one is written to OUTPUT_DIR/NAME."""

    seed: int = 1
    """Seed of the initial weights, of the order of the data and of dropout."""

    resume: bool = False
    """Go on from the newest checkpoint of a run of the same name that was interrupted."""

    overwrite: bool = False
    """Delete an existing run of the same name first."""

    license: str | None = None
    """Licence of the trained model, as an SPDX identifier in lower case, for its card."""

    push_to_hub: str | None = None
    """Upload the evaluated model to this Hub repository (for example USER/NAME) at the end."""

    def __post_init__(self) -> None:
        if self.name in ("", ".", "..") or Path(self.name).name != self.name:
            raise ValueError(f"name is '{self.name}'; it must be the plain name of a folder, without slashes")
        _check_at_least(self, 0, "seed")
        if self.resume and self.overwrite:
            raise ValueError("resume and overwrite are both true; give one of them")
        if self.push_to_hub is not None:
            try:
                validate_repo_id(self.push_to_hub)
            except HFValidationError as error:
                raise ValueError(f"push_to_hub is '{self.push_to_hub}'; it must be USER/NAME: {error}") from error


SourceSpec = str | dict[str, Any] | list[str | dict[str, Any]]
"""What names sources of text: a name, the fields of a `Source`, or a list of those."""


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
        _check_at_least(self, 1, "shuffle_buffer")
        _check_at_least(self, 0, "workers")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; it must be greater than 0")
        if self.streaming and self.temperature != 1:
            raise ValueError(
                f"temperature is {self.temperature}; with streaming it must be 1, since sizes are not known: give the "
                "sources weights"
            )


@dataclass(kw_only=True)
class ParallelData(Corpora):
    """Sentence pairs to learn translation from."""

    source_language: str = "en"
    """Code of the source language: the name of its column or the ending of its files."""

    target_language: str = "de"
    """Code of the target language."""

    max_length: int = 128
    """Longest sentence in tokens; longer inputs are truncated."""

    too_long: Literal["drop", "truncate"] = "drop"
    """What happens to training pairs of which a side is longer than max_length."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_at_least(self, 2, "max_length")  # a token and the end of the sentence


@dataclass(kw_only=True)
class TextData(Corpora):
    """Running text to learn a language model from."""

    language: str = "en"
    """Code of the text's language."""

    text_column: str = "text"
    """Column that holds the text, in tables and data sets of the Hub."""

    documents: Literal["joined", "each", "blank_line"] | None = None
    """Whether the rows of a source run on as one document, each is a document, or blank lines stand between documents
    (of text files). By default a text file is one document, and so is every row of anything else."""

    context_length: int = 256
    """Tokens a training sequence."""

    separate_documents: bool = False
    """Let no token attend to another document of the same training sequence."""

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_at_least(self, 2, "context_length")  # the first token is not predicted


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
        _check_at_least(self, smallest_vocab_size(self.algorithm, self.user_symbols), "vocab_size")
        _check_at_least(self, 1, "min_frequency", "pad_vocab_to_multiple_of")
        _check_at_least(self, 0, "unigram_alpha")
        _check_fraction(self, "bpe_dropout")
        if self.bpe_dropout > 0 and self.algorithm not in ("byte_bpe", "bpe"):
            raise ValueError(f"bpe_dropout is {self.bpe_dropout}; with algorithm {self.algorithm} it must be 0")
        if self.unigram_alpha > 0 and self.algorithm != "unigram":
            raise ValueError(f"unigram_alpha is {self.unigram_alpha}; with algorithm {self.algorithm} it must be 0")


@dataclass(kw_only=True)
class Optimization:
    """Batches, AdamW, learning rate."""

    max_steps: int = 10_000
    """Optimizer steps."""

    tokens_per_batch: int = 4096
    """Tokens of a batch on one device, padding included; for translation, of the longer side."""

    accumulation_steps: int = 1
    """Batches whose gradients are summed before a step; the sum is divided once, by all their tokens."""

    learning_rate: float = 1e-3
    """Peak learning rate, reached after the warm-up."""

    schedule: Literal["inverse_sqrt", "cosine", "linear", "constant"] = "inverse_sqrt"
    """Learning rate after the warm-up: inverse_sqrt (Vaswani et al. 2017, equation 3), cosine (Loshchilov and Hutter
    2016, arXiv 1608.03983) or linear down to nothing at the last step, or constant."""

    warmup_steps: int = 1000
    """Steps over which the learning rate rises linearly."""

    adam_beta1: float = 0.9
    """Decay of Adam's mean of gradients."""

    adam_beta2: float = 0.98
    """Decay of Adam's mean of squared gradients; 0.98 in Vaswani et al. (2017), section 5.3."""

    adam_epsilon: float = 1e-9
    """Added to the root of the mean of squares; 1e-9 in Vaswani et al. (2017), section 5.3."""

    weight_decay: float = 0.0
    """Decoupled weight decay of matrices (Loshchilov and Hutter 2017, arXiv 1711.05101); vectors have none."""

    max_grad_norm: float = 1.0
    """Clip the gradient to this norm (Pascanu et al. 2013, arXiv 1211.5063)."""

    mixed_precision: Literal["no", "bf16"] = "no"
    """Matrix products in bfloat16, weights and optimizer in float32."""

    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""

    def __post_init__(self) -> None:
        _check_at_least(self, 1, "max_steps", "tokens_per_batch", "accumulation_steps")
        _check_at_least(self, 0, "warmup_steps", "weight_decay")
        _check_positive(self, "learning_rate", "adam_epsilon", "max_grad_norm")
        _check_fraction(self, "adam_beta1", "adam_beta2")


@dataclass(kw_only=True)
class EvaluationOptions:
    """How progress is judged and the final model is chosen and scored."""

    every_steps: int = 1000
    """Validate and save a checkpoint every that many steps, and at the end."""

    select_by: Literal["loss", "bleu", "chrf", "exact_match"] = "loss"
    """Validation score by which the final weights are chosen; all but the loss (of seq2seq only) translate greedily."""

    average_checkpoints: int = 0
    """Also consider the mean of the weights of the last that many checkpoints (Vaswani et al. 2017, section 6.1)."""

    num_beams: int = 5
    """Beam size of the final translations, and of the saved generation settings."""

    length_penalty: float = 1.0
    """Exponent of the length by which a beam's score is divided."""

    samples: int = 10
    """Sample outputs for the card."""

    def __post_init__(self) -> None:
        _check_at_least(self, 1, "every_steps", "num_beams")
        _check_at_least(self, 0, "average_checkpoints", "samples")
        if not math.isfinite(self.length_penalty):
            raise ValueError(f"length_penalty is {self.length_penalty}; it must be a finite number")


def _check_at_least(options: object, minimum: int, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not minimum <= value < math.inf:  # written so that it refuses NaN as well
            raise ValueError(f"{name} is {value}; it must be at least {minimum}")


def _check_positive(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; it must be greater than 0")


def _check_fraction(options: object, *names: str) -> None:
    for name in names:
        value = getattr(options, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 0 and less than 1")


DataOptions = TypeVar("DataOptions", ParallelData, TextData)


@dataclass(kw_only=True)
class Recipe(Generic[DataOptions]):
    """A training run, whole."""

    run: RunOptions
    data: DataOptions
    cleaning: Cleaning
    tokenizer: TokenizerOptions
    model: dict[str, Any]
    optimization: Optimization
    evaluation: EvaluationOptions
    yaml: str
    """The recipe as YAML, every field given that makes a difference to the model: what is written into the run's folder
    and its card."""


# Read off the tokenizer, not chosen.
_SET_BY_TOKENIZER = {
    "vocab_size",
    "source_vocab_size",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
}


def recipe_parser(config_class: type[PreTrainedConfig], data_class: type, **options: Any) -> ArgumentParser:
    """A parser of recipes for one family: `--config FILE.yaml`, and an option with its documentation for every field.

    Args:
        config_class: whose fields are the section `model`.
        data_class: whose fields are the section `data`.
        options: of the parser, for example `prog`.
    """
    parser = ArgumentParser(allow_abbrev=False, exit_on_error=False, **options)
    parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="A recipe: a YAML file, or the name of one that ships with the package (see training/recipes).",
    )
    parser.add_class_arguments(RunOptions)
    parser.add_class_arguments(data_class, "data")
    parser.add_class_arguments(Cleaning, "cleaning")
    parser.add_class_arguments(TokenizerOptions, "tokenizer")
    parser.add_class_arguments(config_class, "model", skip=_not_in_recipes())
    parser.add_class_arguments(Optimization, "optimization")
    parser.add_class_arguments(EvaluationOptions, "evaluation")
    return parser


def recipe_fields(config_class: type[PreTrainedConfig], data_class: type) -> Fields:
    """All fields of a family's recipes, by the names they have on the command line, and their types."""
    sections = {
        "": RunOptions,
        "data.": data_class,
        "cleaning.": Cleaning,
        "tokenizer.": TokenizerOptions,
        "model.": config_class,
        "optimization.": Optimization,
        "evaluation.": EvaluationOptions,
    }
    skipped = {f"model.{name}" for name in _not_in_recipes()}
    return {
        f"{prefix}{field.name}": field.type
        for prefix, options_class in sections.items()
        for field in fields(options_class)
        if f"{prefix}{field.name}" not in skipped
    }


def _not_in_recipes() -> set[str]:
    """Fields of a model's configuration that are inherited from transformers or read off the tokenizer."""
    return {field.name for field in fields(PreTrainedConfig)} | {"kwargs"} | _SET_BY_TOKENIZER


def parse_recipe(
    arguments: list[str], config_class: type[PreTrainedConfig], data_class: type[DataOptions], **options: Any
) -> Recipe[DataOptions]:
    """Parses a command line into a recipe.

    Args:
        arguments: the command line, without the program's name.
        config_class, data_class, options: as `recipe_parser` takes them.

    Raises:
        InputError: for a recipe file that cannot be read, an unknown field, a wrong type or value, or options of the
            model that contradict each other.
    """
    parser = recipe_parser(config_class, data_class, **options)
    known = recipe_fields(config_class, data_class)
    flags = {f"--{name}" for name, hint in known.items() if hint is bool}
    arguments, files = _open_recipes(spell_out_flags(arguments, flags), known)
    try:
        parsed = parser.parse_args(arguments)
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise explain(error, arguments, files, known) from error
    for name, hint in known.items():
        if parsed[name] is None and type(None) not in get_args(hint):  # the parser takes null for "not given"
            raise wrong_value(name, "null", arguments, files, known)
    recipe = Recipe(
        run=_build(RunOptions, {field.name: parsed[field.name] for field in fields(RunOptions)}),
        data=_build(data_class, vars(parsed.data), "data."),
        cleaning=_build(Cleaning, vars(parsed.cleaning), "cleaning."),
        tokenizer=_build(TokenizerOptions, vars(parsed.tokenizer), "tokenizer."),
        model=vars(parsed.model),
        optimization=_build(Optimization, vars(parsed.optimization), "optimization."),
        evaluation=_build(EvaluationOptions, vars(parsed.evaluation), "evaluation."),
        yaml=_dump(parsed.as_dict()),
    )
    _check_agreement(recipe, _build(config_class, recipe.model, "model."))
    return recipe


def _dump(options: dict[str, Any]) -> str:
    """The recipe without what concerns one call only: whoever runs it again may not want to delete a run again."""
    kept = {name: value for name, value in options.items() if name not in ("config", "resume", "overwrite")}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True, width=120)


Options = TypeVar("Options")


def _build(options_class: type[Options], values: dict[str, Any], section: str = "") -> Options:
    """Makes one section's object, which checks itself; a complaint begins with the field's name."""
    try:
        return options_class(**values)
    except StrictDataclassError as error:  # wraps what a configuration's own check has raised
        reason = str(error.__cause__ or error).splitlines()[-1].strip()
        raise InputError(f"{section}{reason}") from error
    except ValueError as error:
        raise InputError(f"{section}{error}") from error


def _check_agreement(recipe: Recipe[Any], config: PreTrainedConfig) -> None:
    """Checks what no section can see by itself."""
    data = recipe.data
    name, length = (
        ("max_length", data.max_length) if isinstance(data, ParallelData) else ("context_length", data.context_length)
    )
    if length > config.max_position_embeddings:
        raise InputError(
            f"data.{name} is {length}; it must be at most model.max_position_embeddings "
            f"({config.max_position_embeddings})"
        )
    if isinstance(data, TextData):
        _check_language_model(recipe)
    elif recipe.tokenizer.separate and recipe.model["share_embeddings"]:
        raise InputError("tokenizer.separate is true; model.share_embeddings must be false with it")


def _check_language_model(recipe: Recipe[TextData]) -> None:
    if recipe.optimization.tokens_per_batch < recipe.data.context_length:
        raise InputError(
            f"optimization.tokens_per_batch is {recipe.optimization.tokens_per_batch}; it must be at least "
            f"data.context_length ({recipe.data.context_length})"
        )
    if recipe.evaluation.select_by != "loss":
        raise InputError(
            f"evaluation.select_by is '{recipe.evaluation.select_by}'; a language model is chosen by its 'loss'"
        )
    if recipe.tokenizer.separate:
        raise InputError("tokenizer.separate is true; a language model has one vocabulary")
    for name in ("bpe_dropout", "unigram_alpha"):
        value = getattr(recipe.tokenizer, name)
        if value > 0:
            raise InputError(f"tokenizer.{name} is {value}; it is for translation, and must be 0")


def _open_recipes(arguments: list[str], known: Fields) -> tuple[list[str], list[RecipeFile]]:
    """Reads and checks the files of `--config`, and puts in the paths of recipes that ship with the package."""
    shipped = {path.stem: path for path in (Path(__file__).parent / "recipes").glob("*.yaml")}
    resolved, files = list(arguments), []
    for index, argument in enumerate(arguments):
        option, equals, name = argument.partition("=")
        if option != "--config" or (not equals and index + 1 == len(arguments)):
            continue
        name = name if equals else arguments[index + 1]
        path = Path(name)
        if not path.exists():
            if name not in shipped:
                names = ", ".join(sorted(shipped))
                raise InputError(f"--config: there is no file {name}, and no recipe of that name; there are {names}")
            path = shipped[name]
        files.append(RecipeFile(path, known))
        if equals:
            resolved[index] = f"--config={path}"
        else:
            resolved[index + 1] = str(path)
    return resolved, files
