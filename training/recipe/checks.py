"""What options check of their fields.

A complaint is a ValueError that begins with the field's name; `build` puts before it where the field is.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from huggingface_hub.errors import StrictDataclassError

from ..console.input_error import InputError

Options = TypeVar("Options")


def build(make: Callable[..., Options], values: Mapping[str, Any], place: str = "") -> Options:
    """Makes options, which check themselves.

    Args:
        make: their class, or a function that returns an object of it.
        values: field -> value.
        place: what stands before the field's name in a complaint.

    Raises:
        InputError: with the complaint.
    """
    try:
        return make(**values)
    except StrictDataclassError as error:  # wraps what a configuration's own check has raised
        reason = str(error.__cause__ or error).splitlines()[-1].strip()
        raise InputError(f"{place}{reason}") from error
    except ValueError as error:
        raise InputError(f"{place}{error}") from error


def check_at_least(options: object, minimum: int, *names: str) -> None:
    """The fields are finite numbers, none less than `minimum`, or None."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not minimum <= value < math.inf:  # written so that it refuses NaN as well
            raise ValueError(f"{name} is {value}; it must be at least {minimum}")


def check_positive(options: object, *names: str) -> None:
    """The fields are finite numbers greater than 0, or None."""
    for name in names:
        value = getattr(options, name)
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; it must be greater than 0")


def check_fraction(options: object, *names: str) -> None:
    """The fields are from 0 to 1, 1 excluded."""
    for name in names:
        value = getattr(options, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 0 and less than 1")
