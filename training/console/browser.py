"""The browser of whoever sits at this machine."""

import os
import sys
import webbrowser


def open_page(address: str) -> bool:
    """Opens a page in the browser of this machine; whether there is one for who gave the command to see it.

    Over ssh there is none, nor without a screen: a browser in the terminal would take it over, and is not asked.
    """
    is_remote = any(os.environ.get(name) for name in ("SSH_CONNECTION", "SSH_TTY"))
    has_screen = sys.platform in ("darwin", "win32") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY")
    )
    if is_remote or not has_screen:
        return False
    try:
        return webbrowser.open(address)
    except webbrowser.Error:
        return False
