"""What is known of each option: of the models' configurations, and of the recipes. Its page is made from that.

Nothing here is written twice: names, types, defaults and explanations come from the classes and their docstrings,
proofs from README.md's table and from the tests, costs are computed for the default configuration of each family.
Formulas alone, which docstrings lack, are in `formulas.yaml`.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import yaml
from docstring_parser import parse_from_object

from paperformer.configuration.configuration_encoder import PaperformerEncoderConfig
from paperformer.configuration.configuration_lm import PaperformerLMConfig
from paperformer.configuration.configuration_seq2seq import PaperformerSeq2SeqConfig
from paperformer.training.costs.flops import forward_flops
from paperformer.training.costs.memory import cache_bytes
from paperformer.training.costs.parameters import count_parameters
from paperformer.training.recipe.recipe import NOT_CHOSEN, list_sections
from paperformer.training.recipe.run import RunOptions
from paperformer.training.tasks.registry import OBJECTIVES

REPOSITORY = Path(__file__).parents[2]
FAMILIES = {
    "encoder-decoder": PaperformerSeq2SeqConfig,
    "language model": PaperformerLMConfig,
    "encoder": PaperformerEncoderConfig,
}
TOKENIZERS_FIELDS = {"vocab_size", "source_vocab_size"}  # no recipe has them, but a configuration that one makes
SEQUENCE = 128  # tokens, for what attention costs
TESTS_SHOWN = 4

FORMULAS: dict[str, str] = yaml.safe_load(Path(__file__).with_name("formulas.yaml").read_text("utf-8"))
"""In LaTeX, by section and name."""

PICTURES = {
    "model.hidden_act": "activations.svg",
    "model.gated_mlp": "activations.svg",
    "model.position_embedding_type": "positions.svg",
    "model.attention_window": "patterns.svg",
    "model.attention_stride": "patterns.svg",
    "model.norm_position": "../docs/gradient_flow.svg",
    "optimization.schedule": "schedules.svg",
    "optimization.warmup_steps": "schedules.svg",
    "optimization.decay_steps": "schedules.svg",
}
"""What shows an option: a file of `pictures.py`, or one of the repository's."""


@dataclass
class Option:
    """A field of a configuration or of a recipe."""

    section: str
    """`model`, a section of the recipes, or `run` for their fields without a section."""
    name: str
    type: str
    text: str
    """The docstring."""
    defaults: dict[str, str] = field(default_factory=dict)
    """By family or objective."""

    @property
    def key(self) -> str:
        """Section and name."""
        return f"{self.section}.{self.name}"

    @property
    def flag(self) -> str:
        """How a command line has it."""
        return f"--{self.name}" if self.section == "run" else f"--{self.key}"

    @property
    def papers(self) -> list[str]:
        """The arXiv numbers that its docstring names."""
        return re.findall(r"\d{4}\.\d{5}", self.text)

    @property
    def citations(self) -> list[str]:
        """Authors and years, as its docstring has them."""
        name = r"\b[A-ZÄÖÅ][\w-]+"
        found = re.findall(rf"{name}(?: et\s+al\.| and\s+{name})?,?\s+\(?(?:19|20)\d\d", self.text)
        return list(dict.fromkeys(re.sub(r"[\s(]+", " ", citation) for citation in found))

    @property
    def proofs(self) -> list[tuple[str, str]]:
        """Titles and paths of what README.md names as its proof."""
        return proofs_of_readme().get(self.name, []) if self.section == "model" else []

    @property
    def tests(self) -> list[str]:
        """The tests that use it, those first that do so most."""
        counts = {path: count for path, words in words_of_tests().items() if (count := words.get(self.name, 0))}
        best = sorted(counts, key=lambda path: (self.name not in Path(path).stem, -counts[path], path))
        return best[:TESTS_SHOWN]


def list_options() -> dict[str, Option]:
    """Every option by its key: those of the models first."""
    options: dict[str, Option] = {}
    for family, config in FAMILIES.items():
        _add(options, "model", family, config, NOT_CHOSEN - TOKENIZERS_FIELDS)
    for objective in OBJECTIVES.values():
        _add(options, "run", objective.name, RunOptions, set())
        for section, options_class in list_sections(objective.family.config, objective.data).items():
            if section != "model":
                _add(options, section, objective.name, options_class, set())
    return options


def _add(options: dict[str, Option], section: str, where: str, options_class: Any, skipped: set[str]) -> None:
    texts = {}
    for base in reversed(options_class.__mro__):
        if base.__module__.startswith("paperformer."):
            texts |= {each.arg_name: each.description for each in parse_from_object(base).params if each.description}
    for each in fields(options_class):
        if each.name in skipped or each.name == "kwargs":
            continue
        new = Option(section, each.name, _describe(each.type), texts.get(each.name, ""))
        option = options.setdefault(new.key, new)
        default = each.default if each.default is not MISSING else "required"
        if each.default_factory is not MISSING:
            default = each.default_factory()
        option.defaults[where] = str(default)


def _describe(hint: Any) -> str:
    if _is_literal(hint):
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) in (Union, UnionType):
        parts = [part for part in get_args(hint) if part is not type(None)]
        return " or ".join([*map(_describe, parts), *(["none"] if type(None) in get_args(hint) else [])])
    return f"`{getattr(hint, '__name__', str(hint)) if not get_args(hint) else str(hint).replace('typing.', '')}`"


@cache
def proofs_of_readme() -> dict[str, list[tuple[str, str]]]:
    """What the table of README.md has in its last column, by option."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    names: list[str] = []
    for line in (REPOSITORY / "README.md").read_text("utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) != 5 or not line.startswith("|"):
            names = []
            continue
        names = re.findall(r"`(\w+)`", cells[0]) or (names if not cells[0] else [])
        for name in names:
            found[name] += [
                proof for proof in re.findall(r"\[([^]]*)\]\(([^)]*)\)", cells[4]) if proof not in found[name]
            ]
    return found


@cache
def words_of_tests() -> dict[str, dict[str, int]]:
    """How often each test file has each word."""
    counted: dict[str, dict[str, int]] = {}
    for path in sorted((REPOSITORY / "tests").rglob("test_*.py")):
        words: dict[str, int] = defaultdict(int)
        for word in re.findall(r"[a-z]\w+", path.read_text("utf-8")):
            words[word] += 1
        counted[path.relative_to(REPOSITORY).as_posix()] = words
    counted.pop("tests/test_site.py")  # which has options by name only to say what their pages have
    return counted


@dataclass(frozen=True)
class Cost:
    """What a model with one value of an option has, beside the default model of its family."""

    family: str
    value: str
    is_default: bool
    parameters: int
    flops: float
    """Of a forward pass, a token."""
    cache: float
    """Bytes a token of keys and values in float32; 0 for an encoder."""


def costs(option: Option) -> Iterator[Cost]:
    """What each value costs, of an option of models with a few values, or a size: then the default and twice that."""
    for family, config in FAMILIES.items():
        default = config()
        hint = next((each.type for each in fields(config) if each.name == option.name), None)
        if option.section != "model" or hint is None:
            continue
        given = getattr(default, option.name)
        values = get_args(hint) if _is_literal(hint) else [given, not given] if isinstance(given, bool) else []
        if option.name in SIZES and isinstance(given, int):
            values = [given, 2 * given]
        for value in values:
            try:
                made = config(**{option.name: value, **NEEDED.get((option.name, value), {})})
            except Exception as error:  # a paper rules it out with this family's defaults
                if "Strict" not in type(error).__name__:
                    raise
                continue
            yield _cost(family, made, str(value), is_default=value == given)


SIZES = {
    "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "encoder_layers", "decoder_layers",
    "max_position_embeddings", "num_attention_heads",
}  # fmt: skip
NEEDED: dict[tuple[str, Any], dict[str, Any]] = {
    ("linear_attention", True): {"position_embedding_type": "sinusoidal"},
    ("share_embeddings", False): {},
}


def _is_literal(hint: Any) -> bool:
    return get_origin(hint) is Literal


def _cost(family: str, config: Any, value: str, *, is_default: bool) -> Cost:
    lengths = (SEQUENCE, SEQUENCE if config.is_encoder_decoder else 0)
    has_cache = family != "encoder" and not config.linear_attention
    return Cost(
        family,
        value,
        is_default,
        sum(count_parameters(config).values()),
        sum(forward_flops(config, *lengths).values()) / SEQUENCE,
        cache_bytes(config, *lengths) / SEQUENCE if has_cache else 0.0,
    )
