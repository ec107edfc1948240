from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict, Unpack

import pytest

from paperformer.training.console.input_error import InputError
from paperformer.training.recipe.command_line import CommandLine

More = TypedDict("More", {"from": Literal["a", "b"]}, total=False)
More.__doc__ = """More options.

Args:
    from: Where it comes from.
"""


def command(
    files: list[str],
    output: str,
    size: int = 3,
    fast: bool = False,
    names: list[str] | None = None,
    **more: Unpack[More],
) -> None:
    """A command.

    Args:
        files: Several files.
        output: One of them.
        size: How large.
        fast: How fast.
        names: What of.
    """


def keyword_only(model: str, *, output: str, last: int | None = None) -> None:
    """A command of which an option must be given."""


@dataclass(kw_only=True)
class Inner:
    """A section."""

    wide: int | None = None
    """How wide it is."""

    extra: dict[str, int] = field(default_factory=dict)
    """What else there is."""


def read(*arguments: str, function: Callable[..., None] = command) -> dict[str, Any]:
    command_line = CommandLine(prog="test")
    command_line.add_function(function)
    return vars(command_line.parse(command_line.join_values(arguments)))


def test_words_go_to_positional_parameters_in_any_number() -> None:
    given = read("a", "--size", "4", "b", "c")
    assert (given["files"], given["output"], given["size"]) == (["a", "b"], "c", 4)
    assert read("a", "b")["files"] == ["a"]
    assert read("a", "[b,c]", "d")["files"] == ["a", "[b,c]"]
    assert read("--", "--fast", "b")["files"] == ["--fast"]


def test_join_values() -> None:
    command_line = CommandLine(prog="test")
    command_line.add_function(command)
    for arguments, joined in [
        ("", ""),
        ("--fast", "--fast=true"),
        ("--fast --size 3", "--fast=true --size=3"),
        ("--fast false a", "--fast=false a"),
        ("--fast=false --size", "--fast=false --size"),
        ("--fast -h", "--fast=true -h"),
        ("--help a", "--help a"),
        ("--size -3e9 a - b", "--size=-3e9 a - b"),
        ("a --size 3 b --fast", "--size=3 --fast=true a b"),
        ("--fast -- --size 3", "--fast=true -- --size 3"),
    ]:
        assert command_line.join_values(arguments.split()) == joined.split()


def test_help_explains_every_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "files [files ...] output" in shown
    for text in ("Several files.", "One of them.", "How large.", "How fast.", "What of.", "Where it comes from."):
        assert text in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a b --sise 3", "there is no option --sise; did you mean --size?"),
        ("a b --bananas", "there is no option --bananas; --help lists them all"),
        ("a b --output c", "there is no option --output; --help lists them all"),  # it has a place instead
        ("a b --size large", "--size is large; it must be an integer"),
        ("a b --size=", "--size is ; it must be an integer"),
        ("a b --size null", "--size is null; it must be an integer"),
        ("a b --size", "--size: expected one argument"),
        ("a b --fast perhaps", "--fast is perhaps; it must be true or false"),
        ("a b --from c", "--from is c; it must be a or b"),
        ("a b --names 3", "--names is 3; it must be a list or null"),
        ("a", "the following arguments are required: output"),
        ("", "the following arguments are required: files, output"),
    ],
)
def test_what_is_wrong(arguments: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read(*arguments.split())
    assert str(raised.value) == message


def test_options_that_must_be_given() -> None:
    assert read("a", "--output", "b", function=keyword_only) == {"model": "a", "output": "b", "last": None}
    for arguments, message in [
        ("a --output b --last x", "--last is x; it must be an integer or null"),
        ("a --last 3", "the following arguments are required: output"),
        ("a b --output c", "'b' belongs to no option; options are written --FIELD VALUE"),
    ]:
        with pytest.raises(InputError) as raised:
            read(*arguments.split(), function=keyword_only)
        assert str(raised.value) == message


def test_sections_of_dataclasses() -> None:
    command_line = CommandLine(prog="test")
    command_line.add_class(Inner, "inner")
    assert list(command_line.fields) == ["inner.wide", "inner.extra"]

    def parse(arguments: str) -> Any:
        return command_line.parse(command_line.join_values(arguments.split())).inner

    assert parse("--inner.wide 3").wide == 3
    assert parse("--inner.extra.a 3 --inner.extra.b 4").extra == {"a": 3, "b": 4}
    for arguments, message in [
        ("--inner.wide much", "--inner.wide is much; it must be an integer or null"),
        ("--iner.wide 3", "there is no option --iner.wide; did you mean --inner.wide?"),
        ("stray", "'stray' belongs to no option; options are written --FIELD VALUE"),
    ]:
        with pytest.raises(InputError) as raised:
            parse(arguments)
        assert str(raised.value) == message
    assert command_line.parse([], defaults=False).as_dict() == {}
