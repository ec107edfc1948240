"""What may change between the start of a run and its resumption, and what cannot."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import yaml

from ..console.input_error import InputError


class Change(NamedTuple):
    """A field of a recipe that is not what it was."""

    field: str
    before: Any
    now: Any


SAME_WEIGHTS = {
    "model.dropout",
    "model.attention_dropout",
    "model.activation_dropout",
    "model.label_smoothing",
    "model.use_cache",
    "tokenizer.bpe_dropout",
    "tokenizer.unigram_alpha",
}
"""Of the sections `model` and `tokenizer`, what does not alter what the weights mean."""

_SAME_BATCHES = {"data.workers", "data.cache_dir", "data.on_bad_line"}
"""Of the sections that make the batches, what does not alter them."""


def check_changes(path: object, before: str, now: str) -> list[Change]:
    """What has changed from one recipe to the next.

    Args:
        path: of the run, for the message.
        before, now: recipes, as YAML.

    Raises:
        InputError: if the weights, the state of the optimizer or the randomness of the first could not go on in the
            second.
    """
    wanted = yaml.safe_load(now)
    changes = list(_changes(yaml.safe_load(before), wanted))
    fixed = {"seed", "optimization.optimizer"}
    if wanted["optimization"]["optimizer"] == "schedule_free":
        fixed.add("optimization.adam_beta1")  # by which the averages follow from the weights
    for field, earlier, value in changes:
        section = field.partition(".")[0]
        is_fixed = field in fixed or section in ("model", "tokenizer")
        if is_fixed and field not in SAME_WEIGHTS:
            raise InputError(
                f"the run {path} was begun with {field} {earlier}, and this recipe has {value}; resume it with the "
                "same, or give another --name or --overwrite"
            )
    return changes


def _changes(before: dict[str, Any], now: dict[str, Any]) -> Iterator[Change]:
    """What both recipes have and is different; what a recipe of an earlier version lacks has its default there."""
    for name, value in now.items():
        earlier = before.get(name, value)
        if isinstance(value, dict) and isinstance(earlier, dict):
            yield from (Change(f"{name}.{field}", *values) for field, *values in _changes(earlier, value))
        elif value != earlier:
            yield Change(name, earlier, value)


def what_makes_batches(recipe: str) -> dict[str, Any]:
    """The fields of a recipe, given as YAML, on which it depends what the batches of an epoch are."""
    options = yaml.safe_load(recipe)
    fields = {
        f"{section}.{name}": value
        for section in ("data", "cleaning", "tokenizer")
        for name, value in options[section].items()
    }
    fields["optimization.tokens_per_batch"] = options["optimization"]["tokens_per_batch"]
    return {name: value for name, value in fields.items() if name not in _SAME_BATCHES}
