"""How many examples the property tests try."""

from hypothesis import settings


def examples(number: int) -> int:
    """A quarter of a property's own number, or all of them: `make proofs ARGS=--hypothesis-profile=thorough`."""
    return number if settings.get_current_profile_name() == "thorough" else max(5, number // 4)
