"""The command line: `paperformer COMMAND --help` explains each command.

A command is a function of `commands`; its signature and docstring are its options and its help. One that takes
`*arguments` parses them itself. What a command needs is imported when it runs, because torch and transformers take
seconds.
"""

import argparse
import difflib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, NoReturn, get_args

from .commands import tokenizers
from .commands.averaging import average
from .commands.model_folders import convert, push
from .commands.plots import PLOTS
from .commands.runs import runs
from .commands.text import evaluate, generate, translate
from .commands.training import plan, prepare_lm, prepare_seq2seq, quickstart, train_lm, train_seq2seq

Command = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Commands that share their first word, such as `paperformer plot attention` and `paperformer plot positions`."""

    summary: str
    member: str
    """What one of them is, in messages."""
    commands: Mapping[str, Command]
    more_help: str = ""


COMMANDS: dict[str, Command | Group] = {
    "quickstart": quickstart,
    "tokenizer": Group(
        summary="Train subword tokenizers, look inside, and compare them: paperformer tokenizer train|show|compare ...",
        member="tokenizer command",
        commands={"train": tokenizers.train, "show": tokenizers.show, "compare": tokenizers.compare},
    ),
    "runs": runs,
    "average": average,
    "evaluate": evaluate,
    "translate": translate,
    "generate": generate,
    "convert": convert,
    "push": push,
    "prepare": Group(
        summary="Read, clean and tokenise a recipe's data before training, and report: "
        "paperformer prepare seq2seq|lm --config RECIPE.yaml ...",
        member="family of models",
        commands={"seq2seq": prepare_seq2seq, "lm": prepare_lm},
    ),
    "train": Group(
        summary="Train a model from a recipe: paperformer train seq2seq|lm --config RECIPE.yaml [overrides].",
        member="family of models",
        commands={"seq2seq": train_seq2seq, "lm": train_lm},
        more_help="Several GPUs: accelerate launch -m paperformer.training.train_seq2seq (or train_lm), with the same "
        "options.",
    ),
    "plot": Group(
        summary="Draw attention, positions or gradient norms as SVG or PNG: "
        "paperformer plot attention|positions|gradients ...",
        member="kind of plot",
        commands=PLOTS,
    ),
    "plan": plan,
}


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `paperformer`: exits with 2 and one line for bad input."""
    name, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        _dispatch(name, rest)
    except KeyboardInterrupt:
        sys.exit(130)


def _dispatch(name: str, rest: list[str]) -> None:
    if name in ("-h", "--help"):
        print(_overview())
    elif name == "--version":
        print(version("paperformer"))
    elif name not in COMMANDS:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "paperformer --help lists the commands"
        _stop(f"there is no command '{name}'; {hint}")
    elif isinstance(command := COMMANDS[name], Group):
        _dispatch_in_group(f"paperformer {name}", command, rest)
    else:
        _call(f"paperformer {name}", command, rest)


def _dispatch_in_group(words: str, group: Group, arguments: list[str]) -> None:
    """Goes on with the word behind the group's; `words` are those so far."""
    name, *rest = arguments or [""]
    if name in ("-h", "--help"):
        print(_group_help(words, group))
    elif name in group.commands:
        _call(f"{words} {name}", group.commands[name], rest)
    else:
        said = f"'{name}' is no {group.member}" if name else f"the {group.member} is missing"
        if near := difflib.get_close_matches(name, group.commands, n=1):
            _stop(f"{said}; did you mean {words} {near[0]}?")
        *others, last = (f"{words} {known}" for known in group.commands)
        _stop(f"{said}; say {', '.join(others)} or {last}")


def _overview() -> str:
    return "\n".join(
        [
            "paperformer: the Transformer of the papers, trained from scratch and published to the Hub.",
            "",
            "usage: paperformer COMMAND [options]",
            "",
            *_list(COMMANDS),
            "",
            "paperformer COMMAND --help explains the options of a command.",
        ]
    )


def _group_help(words: str, group: Group) -> str:
    advice = f"{words} {next(iter(group.commands))} --help explains the options, and so on."
    return "\n".join([group.summary, "", *_list(group.commands), "", advice, *filter(None, [group.more_help])])


def _list(commands: Mapping[str, Command | Group]) -> list[str]:
    return [f"  {name:<12}{_summary(command)}" for name, command in commands.items()]


def _summary(command: Command | Group) -> str:
    return command.summary if isinstance(command, Group) else (command.__doc__ or "").split("\n", 1)[0]


def _call(words: str, function: Command, arguments: list[str]) -> None:
    """Parses the arguments by the function's signature and calls it; `words` are those that name it."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values()):
        function(*arguments)
        return
    from jsonargparse import ArgumentParser

    from .training.input_error import one_line_errors
    from .training.recipe_file import explain, spell_out_flags

    fields: dict[str, Any] = {}
    for name, parameter in parameters.items():
        unpacked = parameter.kind is parameter.VAR_KEYWORD  # its annotation is Unpack[a TypedDict]
        fields |= get_args(parameter.annotation)[0].__annotations__ if unpacked else {name: parameter.annotation}
    flags = {f"--{name}" for name, annotation in fields.items() if annotation is bool}
    parser = ArgumentParser(prog=words, description=_summary(function), exit_on_error=False, allow_abbrev=False)
    parser.add_function_arguments(function, as_group=False, as_positional=True)
    for action in parser._actions:
        if not action.option_strings and fields.get(action.dest) in _SEVERAL_WORDS:
            _take_several_words(action, _SEVERAL_WORDS[fields[action.dest]])
    try:
        options: dict[str, Any] = vars(parser.parse_args(spell_out_flags(arguments, flags)))
    except (argparse.ArgumentError, ValueError) as error:
        reason = error if "are required" in str(error) else explain(error, arguments, [], fields)
        _stop(" ".join(f"{reason} ({words} --help)".split()))
    with one_line_errors():
        function(**options)


_SEVERAL_WORDS: dict[Any, str] = {list[str]: "+", tuple[str, ...]: "*"}
"""Positional parameters that take one word or more, or any number, as argparse writes it."""


def _take_several_words(action: Any, number: str) -> None:
    """Makes a positional list take several words, as a shell makes of *.txt; jsonargparse wants one, [a.txt,b.txt]."""
    action.nargs, action.metavar, action._typehint = number, action.dest, str


def _stop(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main()
