"""What options check of their fields.

A complaint is a ValueError that begins with the field's name; the recipe puts the section before it.
"""

import math


def check_at_least(options: object, minimum: int, *names: str) -> None:
    """The fields are finite numbers, none less than `minimum`."""
    for name in names:
        value = getattr(options, name)
        if not minimum <= value < math.inf:  # written so that it refuses NaN as well
            raise ValueError(f"{name} is {value}; it must be at least {minimum}")


def check_positive(options: object, *names: str) -> None:
    """The fields are finite numbers greater than 0."""
    for name in names:
        value = getattr(options, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name} is {value}; it must be greater than 0")


def check_fraction(options: object, *names: str) -> None:
    """The fields are from 0 to 1, 1 excluded."""
    for name in names:
        value = getattr(options, name)
        if not 0 <= value < 1:
            raise ValueError(f"{name} is {value}; it must be at least 0 and less than 1")
