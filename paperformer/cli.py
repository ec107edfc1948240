"""The command line: `paperformer COMMAND --help` explains each command.

A command is a function of `commands`; its signature and docstring are its options and its help. One that takes
`*arguments` parses them itself. What a command needs is imported when it runs, because torch and transformers take
seconds.
"""

import os
import sys

from .command_groups import Command, Group, make_command_line, parses_itself, summarise
from .commands import tokenizers
from .commands.averaging import average
from .commands.completion import make_completion
from .commands.demo import demo
from .commands.environment import doctor
from .commands.evaluation import evaluate, likelihood, score
from .commands.exercises import EXERCISES
from .commands.model_folders import convert, export, push
from .commands.plots import PLOTS
from .commands.runs import runs
from .commands.serving import check, serve
from .commands.sweeps import sweep
from .commands.text.prompts import generate
from .commands.text.translation import translate
from .commands.training import TRAINED, make_prepare, make_train, plan, quickstart
from .training.console.colours import paint_help
from .training.console.input_error import InputError, one_line_errors
from .training.console.progress import is_first_process
from .training.console.suggestions import suggest

COMMANDS: dict[str, Command | Group] = {
    "quickstart": quickstart,
    "tokenizer": Group(
        summary="Train subword tokenizers, look inside, and compare them: paperformer tokenizer train|show|compare ...",
        member="tokenizer command",
        commands={"train": tokenizers.train_on_files, "show": tokenizers.show, "compare": tokenizers.compare},
    ),
    "runs": runs,
    "average": average,
    "evaluate": evaluate,
    "score": score,
    "likelihood": likelihood,
    "translate": translate,
    "generate": generate,
    "serve": serve,
    "demo": demo,
    "check": check,
    "convert": convert,
    "export": export,
    "push": push,
    "prepare": Group(
        summary="Read, clean and tokenise a recipe's data before training, and report: "
        f"paperformer prepare {'|'.join(TRAINED)} --config RECIPE.yaml ...",
        member="family of models",
        commands={name: make_prepare(name) for name in TRAINED},
    ),
    "train": Group(
        summary=f"Train a model from a recipe, or from a file without one: paperformer train {'|'.join(TRAINED)} "
        "--config RECIPE.yaml [overrides], or --data.train FILE [options].",
        member="family of models",
        commands={name: make_train(name) for name in TRAINED},
        more_help="Several GPUs: accelerate launch -m paperformer.training.train_seq2seq (or train_lm, "
        "train_encoder, train_denoising), with the same options.",
    ),
    "sweep": sweep,
    "plot": Group(
        summary="Draw attention, positions or gradient norms as SVG or PNG: "
        "paperformer plot attention|positions|gradients ...",
        member="kind of plot",
        commands=PLOTS,
    ),
    "plan": plan,
    "exercise": Group(
        summary="Do an exercise of the texts, and write its card: paperformer exercise "
        f"{'|'.join(EXERCISES)} ... (docs/exercises.md)",
        member="exercise",
        commands=EXERCISES,
    ),
    "doctor": doctor,
    "completion": make_completion(lambda: PAPERFORMER),
}


BY_ONE_PROCESS = COMMANDS.keys() - {"train"}
"""Commands of which a launcher's processes would each do the same; a training divides its work."""

OF_A_LAUNCHER = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "RANK", "LOCAL_RANK", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Variables by which a process is told of the others."""


PAPERFORMER: Group = Group(
    summary="paperformer: the Transformer of the papers, trained from scratch and published to the Hub.\n\n"
    "usage: paperformer COMMAND [options]",
    member="command",
    commands=COMMANDS,
)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of `paperformer`: exits with 2 and one line for bad input, with 130 and one line on Ctrl-C."""
    arguments = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    with one_line_errors():
        if arguments[0] == "--version":
            from .diagnosis.installation import describe_versions

            print(describe_versions())
        else:
            if arguments[0] in BY_ONE_PROCESS:
                arguments = _as_one_command(arguments)
            _dispatch("paperformer", PAPERFORMER, arguments)


def _as_one_command(arguments: list[str]) -> list[str]:
    """The arguments by which the first of a launcher's processes does the work of all; the others end here.

    `accelerate launch` and torchrun say by these variables how many processes they have started. A command that divides
    its work does so by itself: it starts as many processes, gives them shares, and writes what they make, in order and
    once. Those of the launcher could not share standard input, and would not go on where one of them was killed.

    Raises:
        InputError: in the first of several processes that would all do the same.
    """
    command, count = arguments[0], os.environ.get("WORLD_SIZE", "1")
    if not count.isdigit() or int(count) == 1:
        return arguments
    is_divided = command in ("translate", "evaluate", "likelihood")
    if is_divided and os.environ.get("LOCAL_WORLD_SIZE") == count:
        if not is_first_process():
            sys.exit(0)
        for name in OF_A_LAUNCHER:  # or what we call would wait for the others to meet it
            os.environ.pop(name, None)
        given = any(word.partition("=")[0] == "--processes" for word in arguments)
        return arguments if given else [*arguments, "--processes", count]
    if not is_first_process():
        sys.exit(2)
    raise InputError(
        f"a launcher has started {count} processes, each of which would do all of it; start paperformer {command} by "
        f"itself{f', with --processes {count}' if is_divided else ''}"
    )


def _dispatch(words: str, group: Group, arguments: list[str]) -> None:
    """Goes on with the first of the arguments; `words` are those before it, which name the group."""
    name, *rest = arguments or [""]
    if name in ("-h", "--help"):
        print(paint_help(_help(words, group), sys.stdout))
        return
    if name not in group.commands:
        said = f"'{name}' is no {group.member}" if name else f"the {group.member} is missing"
        *others, last = (f"{words} {known}" for known in group.commands)
        choices = f"say {', '.join(others)} or {last}" if len(others) < 3 else f"{words} --help lists them"
        raise InputError(f"{said}; {suggest(name, group.commands, choices, prefix=f'{words} ')}")
    command = group.commands[name]
    if isinstance(command, Group):
        _dispatch(f"{words} {name}", command, rest)
    else:
        _call(f"{words} {name}", command, rest)


def _help(words: str, group: Group) -> str:
    commands = [f"  {name:<12}{summarise(command)}" for name, command in group.commands.items()]
    advice = f"{words} {next(iter(group.commands))} --help explains the options, and so on."
    return "\n".join([group.summary, "", *commands, "", advice, *filter(None, [group.more_help])])


def _call(words: str, function: Command, arguments: list[str]) -> None:
    """Parses the arguments by the function's signature and calls it."""
    if parses_itself(function):
        function(*arguments)
        return
    command_line = make_command_line(words, function)
    try:
        options = command_line.parse(command_line.join_values(arguments))
    except InputError as error:
        raise InputError(f"{error} ({words} --help)") from error
    function(**vars(options))


if __name__ == "__main__":
    main()
