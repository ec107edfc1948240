"""A hook of MkDocs: a page that would load anything from another host ends the build."""

import re
from typing import Any

LOADED = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="https?://[^"]*"[^>]*>')


def on_post_page(output: str, **of_the_page: Any) -> str:
    """The page, if it asks nothing of other hosts.

    Raises:
        ValueError: if it does; the message has the element.
    """
    if found := LOADED.search(output):
        raise ValueError(f"a page would load from another host: {found[0]}")
    return output
