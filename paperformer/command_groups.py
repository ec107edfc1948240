"""What the command line is made of: commands, which are functions, and groups of them."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .training.recipe.command_line import CommandLine

Command = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Commands that share their first word, such as `paperformer plot attention` and `paperformer plot positions`."""

    summary: str
    member: str
    """What one of them is, in messages."""
    commands: "Mapping[str, Command | Group]"
    more_help: str = ""


def summarise(command: Command | Group) -> str:
    """What a command or a group is for, in a line."""
    return command.summary if isinstance(command, Group) else (command.__doc__ or "").split("\n", 1)[0]


def parses_itself(function: Command) -> bool:
    """Whether a command takes its arguments as they are."""
    return any(each.kind is each.VAR_POSITIONAL for each in inspect.signature(function).parameters.values())


def make_command_line(words: str, function: Command) -> "CommandLine":
    """What parses a command's arguments, by its signature; `words` are those that name it."""
    from .training.recipe.command_line import CommandLine

    command_line = CommandLine(prog=words, description=summarise(function))
    command_line.add_function(function)
    return command_line
