"""`import paperformer`: its names, and what it costs."""

import subprocess
import sys

import pytest

import paperformer


def test_every_public_name_is_there() -> None:
    for name in paperformer.__all__:
        assert getattr(paperformer, name) is not None
    assert set(paperformer.__all__) <= set(dir(paperformer))
    assert set(paperformer.__all__) == paperformer._MODULES.keys() | {"__version__"}


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'paperformer' has no attribute 'PaperformerModel'"):
        paperformer.PaperformerModel  # noqa: B018


@pytest.mark.parametrize(
    ("argv", "is_registered"),
    [
        (["/usr/bin/paperformer", "--help"], False),
        (["/usr/bin/paperformer", "train", "-h"], False),
        (["/usr/bin/paperformer"], False),
        (["/usr/bin/paperformer", "translate"], True),
        (["script.py", "--help"], True),
        ([""], True),
    ],
)
def test_only_a_help_text_goes_without_the_registration(
    argv: list[str], is_registered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", argv)
    assert paperformer._only_shows_help() is not is_registered


def test_a_help_text_does_not_wait_for_torch() -> None:
    code = (
        "import sys; sys.argv = ['paperformer', '--help']; import paperformer; "
        "print({'torch', 'transformers'} & set(sys.modules), paperformer.__version__)"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert process.stdout == f"set() {paperformer.__version__}\n"
