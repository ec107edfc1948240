"""The command that writes what a shell needs to complete ours: words, options, their values, files."""

import re
import shlex
import textwrap
from argparse import ArgumentParser
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from ..command_groups import Command, Group, make_command_line, parses_itself, summarise
from ..training.console.input_error import InputError

if TYPE_CHECKING:
    from ..training.recipe.command_line import CommandLine

Shell = Literal["bash", "zsh", "fish"]

RECIPES = "_paperformer_recipes"
"""The function of the scripts that completes a recipe: its name, or a file."""


def make_completion(find_commands: Callable[[], Group]) -> Command:
    """The command, for a command line that it is itself a part of."""

    def completion(shell: Shell) -> None:
        """Print a script that lets a shell complete commands, options, their values and files.

        The script is text: completing starts no Python. Write it anew after an update of paperformer.

        bash: paperformer completion bash > ~/.local/share/bash-completion/completions/paperformer
        zsh: paperformer completion zsh > ~/.zfunc/_paperformer, with fpath+=~/.zfunc before compinit in ~/.zshrc
        fish: paperformer completion fish > ~/.config/fish/completions/paperformer.fish

        Args:
            shell: The shell: bash, zsh or fish.
        """
        try:
            import shtab
        except ModuleNotFoundError as error:
            raise InputError("completion needs shtab: pip install 'paperformer[completion]'") from error
        script = shtab.complete(make_parser(find_commands()), shell, preamble=_recipe_functions()[shell])
        # Of an argument that may be given several times, shtab has zsh complete only the first.
        print(re.sub(r'^(\s*")\(\*\)::?', r"\1*:", script, flags=re.MULTILINE) if shell == "zsh" else script)

    return completion


def make_parser(commands: Group) -> ArgumentParser:
    """All commands as one parser of argparse, which is never used to parse: with their options, choices and help."""
    parser = ArgumentParser(prog="paperformer", add_help=False)
    parser.add_argument("--help", action="store_true", help="list the commands")
    parser.add_argument("--version", action="store_true", help="versions of all that matters")
    _add_commands(parser, "paperformer", commands)
    return parser


def _add_commands(parser: ArgumentParser, words: str, group: Group) -> None:
    subparsers = parser.add_subparsers()
    for name, command in group.commands.items():
        sub = subparsers.add_parser(name, help=_brief(summarise(command)), add_help=False)
        if isinstance(command, Group):
            _add_commands(sub, f"{words} {name}", command)
        else:
            for command_line in _command_lines(f"{words} {name}", command):
                _add_options(sub, command_line)


def _command_lines(words: str, command: Command) -> "list[CommandLine]":
    """What parses a command's arguments; of those that do it themselves, the same as they make."""
    if not parses_itself(command):
        return [make_command_line(words, command)]
    from ..training.recipe.parsing import recipe_parser
    from ..training.tasks.registry import OBJECTIVES
    from .training import make_cluster_parser, make_plan_parser

    *_, group, name = words.split()
    if name not in OBJECTIVES:
        return [make_plan_parser()]
    recipe = recipe_parser(OBJECTIVES[name].family.config, OBJECTIVES[name].data)
    return [recipe, make_cluster_parser(words)] if group == "prepare" else [recipe]


def _add_options(parser: ArgumentParser, command_line: "CommandLine") -> None:
    from shtab import FILE

    known = {action.dest for action in parser._actions}
    for action in command_line.parser._actions:
        if action.dest in known:
            continue
        if action.dest == "help":
            parser.add_argument(*action.option_strings, action="store_true", help="explain the options")
            continue
        hint = command_line.fields.get(action.dest, getattr(action, "_typehint", None))
        # A flag's value may be left out.
        choices, nargs = (["true", "false"], "?") if hint is bool else (_choices(hint) or None, action.nargs)
        argument: Any = parser.add_argument(
            *(action.option_strings or [action.dest]),
            help=_brief(str(action.help or "")),
            nargs=nargs,
            choices=choices,
        )
        if action.dest == "config":
            argument.complete = {"bash": RECIPES, "zsh": RECIPES, "fish": f"({RECIPES})"}
        elif choices is None and (not action.option_strings or str in (hint, *get_args(hint))):
            argument.complete = FILE


def _brief(text: str) -> str:
    """What fits beside an option in a list; argparse takes a % for the beginning of a name."""
    return textwrap.shorten(text, 80, placeholder=" ...").replace("%", "%%")


def _choices(hint: Any) -> list[str]:
    """The values that a type names; none if it has others beside them."""
    if get_origin(hint) is Literal:
        return [str(value) for value in get_args(hint)]
    if get_origin(hint) is Union or type(hint).__name__ == "UnionType":
        found = [value for part in get_args(hint) for value in _choices(part)]
        others = [part for part in get_args(hint) if part is not type(None) and get_origin(part) is not Literal]
        return [] if others else found
    return []


def _recipe_functions() -> dict[str, str]:
    """A function for each shell, with the names of the recipes that ship with the package."""
    from ..training.recipe.recipe_file import SHIPPED_RECIPES

    names = " ".join(shlex.quote(path.stem) for path in sorted(SHIPPED_RECIPES.glob("*.yaml")))
    return {
        "bash": f'{RECIPES}() {{ compgen -W "{names}" -- "$1"; compgen -f -- "$1"; }}',
        "zsh": f"{RECIPES}() {{ compadd -- {names}; _files; }}",
        "fish": f"function {RECIPES}; printf '%s\\n' {names}; __fish_complete_path (commandline -ct); end",
    }
