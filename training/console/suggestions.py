"""What is said to somebody who has written a name that does not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, known: Iterable[str], otherwise: str, *, prefix: str = "") -> str:
    """`did you mean NEAR?`, upper and lower case being alike, or something else if no known name is near.

    Args:
        name: what was written.
        known: what could have been meant.
        otherwise: what to say instead.
        prefix: words that stand before the near name in the answer.
    """
    names = {known_name.lower(): known_name for known_name in known}
    near = get_close_matches(name.lower(), names, n=1)
    return f"did you mean {prefix}{names[near[0]]}?" if near else otherwise
