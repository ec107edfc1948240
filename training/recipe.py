"""Recipes: typed options of a training run, read from YAML and overridden on the command line.

Each field's docstring is its `--help` text. The `model` section holds the fields of the model's own configuration class
(`PaperformerSeq2SeqConfig` or `PaperformerLMConfig`), which documents them.
"""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from jsonargparse import ActionConfigFile, ArgumentParser, Namespace, set_parsing_settings
from transformers import PreTrainedConfig

from .input_error import InputError

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


@dataclass(kw_only=True)
class ParallelData:
    """Sentence pairs to learn translation from."""

    dataset: str
    """Where the pairs come from: the name of a data set on the Hub, a local folder, or built-in:cldr (localised
    expressions of Unicode CLDR, for any pair of its locales)."""

    train: str = "train"
    """Training split: its name on the Hub; in a folder, the files SPLIT.SOURCE and SPLIT.TARGET with one sentence a line,
    or SPLIT.tsv with a pair a line; .gz, .xz and .bz2 are read too."""

    validation: str = "validation"
    """Validation split, on which everything is chosen."""

    test: str = "test"
    """Test split, on which the chosen model is scored once."""

    source_language: str = "en"
    """Code of the source language: the name of its column or the ending of its files."""

    target_language: str = "de"
    """Code of the target language."""

    max_length: int = 128
    """Longest sentence in tokens; longer training pairs are left out, longer inputs are truncated."""


@dataclass(kw_only=True)
class TextData:
    """Running text to learn a language model from."""

    dataset: str
    """Where the text comes from: the name of a data set on the Hub, a local folder, or built-in:shakespeare (the
    plays, with whole plays held out)."""

    train: str = "train"
    """Training split: its name on the Hub; in a folder, the file SPLIT.txt; .gz, .xz and .bz2 are read too."""

    validation: str = "validation"
    """Validation split, on which everything is chosen."""

    test: str = "test"
    """Test split, on which the chosen model is scored once."""

    language: str = "en"
    """Code of the text's language, for the card."""

    text_column: str = "text"
    """Column of a Hub data set that holds the text; its rows are joined as they are."""

    context_length: int = 256
    """Tokens a training sequence."""


@dataclass(kw_only=True)
class TokenizerOptions:
    """The byte-level BPE vocabulary."""

    path: str | None = None
    """Use this saved tokenizer instead of training one."""

    vocab_size: int = 8000
    """Entries of the vocabulary, the 256 bytes and 4 special tokens included; joint for both languages."""

    min_frequency: int = 2
    """How often a pair of symbols must occur to be merged."""

    split_digits: bool = False
    """Make every digit a token of its own, so that numbers are read and written digit by digit."""

    bpe_dropout: float = 0.0
    """Probability of skipping a merge while training, so that words are seen in several segmentations (Provilkov et al.
    2020, arXiv 1910.13267). 0.1 often helps small data sets; the saved tokenizer stays deterministic."""


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


@dataclass(kw_only=True)
class Recipe:
    """A training run, whole."""

    run: RunOptions
    data: Any
    tokenizer: TokenizerOptions
    model: dict[str, Any]
    optimization: Optimization
    evaluation: EvaluationOptions
    yaml: str
    """The recipe as YAML, every field given: what is written into the run's folder and its card."""


# Read off the tokenizer, not chosen.
_SET_BY_TOKENIZER = {"vocab_size", "pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id"}


def recipe_parser(config_class: type[PreTrainedConfig], data_class: type, **kwargs: Any) -> ArgumentParser:
    """A parser of recipes for one family: `--config FILE.yaml` and an option for every field, with its documentation."""
    parser = ArgumentParser(allow_abbrev=False, exit_on_error=False, **kwargs)
    parser.add_argument(
        "--config",
        action=ActionConfigFile,
        help="A recipe: a YAML file, or the name of one that ships with the package (see training/recipes).",
    )
    parser.add_class_arguments(RunOptions)
    parser.add_class_arguments(data_class, "data")
    parser.add_class_arguments(TokenizerOptions, "tokenizer")
    inherited = {field.name for field in fields(PreTrainedConfig)} | {"kwargs"}
    parser.add_class_arguments(config_class, "model", skip=inherited | _SET_BY_TOKENIZER)
    parser.add_class_arguments(Optimization, "optimization")
    parser.add_class_arguments(EvaluationOptions, "evaluation")
    return parser


def parse_recipe(parser: ArgumentParser, arguments: list[str]) -> Recipe:
    """Parses a command line into a recipe.

    Raises:
        InputError: for an unknown field, a wrong type or value, or a recipe file that cannot be read.
    """
    try:
        parsed = parser.parse_args(spell_out_flags(_name_shipped_recipes(arguments), {"--resume", "--overwrite"}))
    except (argparse.ArgumentError, TypeError, ValueError) as error:
        raise InputError(" ".join(str(error).split())) from error
    options = parser.instantiate_classes(parsed)
    run = RunOptions(**{field.name: options[field.name] for field in fields(RunOptions)})
    return Recipe(
        run=run,
        data=options.data,
        tokenizer=options.tokenizer,
        model=vars(parsed.model) if isinstance(parsed.model, Namespace) else dict(parsed.model),
        optimization=options.optimization,
        evaluation=options.evaluation,
        yaml=parser.dump(parsed, skip_none=False),
    )


def spell_out_flags(arguments: list[str], flags: set[str]) -> list[str]:
    """Adds the `true` that jsonargparse wants after a boolean option, where none is given: `--resume` is `--resume true`."""
    spelled = []
    for argument, following in zip(arguments, [*arguments[1:], "--"], strict=True):
        spelled += [argument, "true"] if argument in flags and following.startswith("-") else [argument]
    return spelled


def _name_shipped_recipes(arguments: list[str]) -> list[str]:
    """Replaces `--config NAME` by the path of the recipe NAME of the package where no file NAME exists."""
    recipes = Path(__file__).parent / "recipes"
    resolved = list(arguments)
    for index, argument in enumerate(arguments[:-1]):
        name = arguments[index + 1]
        if argument == "--config" and not Path(name).exists() and (recipes / f"{name}.yaml").is_file():
            resolved[index + 1] = str(recipes / f"{name}.yaml")
    return resolved
