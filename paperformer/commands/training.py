"""Commands that make models: plan one, train one, and see both kinds trained."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..bulk import PREPARATION_SHARD_LINES

if TYPE_CHECKING:
    from ..training.recipe.command_line import CommandLine

OVERRIDES = """Every field of the model's configuration is an option too, with the name that it has in Python:
--hidden_size 1024 --num_hidden_layers 24 --vocab_size 8000; the paper's d_model, d_ff, n_heads and n_layers will do.
paperformer train lm --help and paperformer train seq2seq --help explain them."""


def quickstart(fast: bool = False, output_dir: str = "runs/quickstart") -> None:
    """Train two small models from data that ships with the package, score them, load them back, and use them.

    Args:
        fast: Train for seconds only, to see that everything works.
        output_dir: Folder for the two runs; earlier ones of the quickstart are replaced.
    """
    from ..quickstart import run_quickstart

    run_quickstart(Path(output_dir), fast=fast)


TRAINED = {
    "seq2seq": ("an encoder-decoder to translate", "the sentence pairs"),
    "lm": ("a decoder-only language model", "the running text"),
    "encoder": ("an encoder, by filling in masked tokens", "the running text"),
    "denoising": ("an encoder-decoder, by restoring dropped spans of text", "the running text"),
}
"""Name of an objective, as in `training/tasks/registry.py` -> what is trained, and on what: known here as well, because
the help text does not wait for the models to be imported."""


def make_train(name: str) -> Callable[..., None]:
    """The command that trains for an objective."""

    def train(*arguments: str) -> None:
        from ..training.run import main
        from ..training.tasks.registry import OBJECTIVES

        main(OBJECTIVES[name], list(arguments))

    train.__doc__ = f"Train {TRAINED[name][0]}; --help lists every field of its recipes."
    return train


def make_prepare(name: str) -> Callable[..., None]:
    """The command that prepares the data of an objective."""

    def prepare(*arguments: str) -> None:
        options, others = take_cluster_options(f"paperformer prepare {name}", arguments)
        from ..training.prepare import main
        from ..training.tasks.registry import OBJECTIVES

        if options.on is None:
            main(OBJECTIVES[name], others)
            return
        from ..bulk.on_ray import prepare_on_ray

        main(OBJECTIVES[name], others, prepare_on_ray(options.processes, options.shard_lines))

    prepare.__doc__ = f"Read, clean and tokenise {TRAINED[name][1]} of a recipe, and report; --help lists every field."
    return prepare


@dataclass(kw_only=True)
class ClusterOptions:
    """Options of `prepare` beside those of the recipe."""

    on: Literal["ray"] | None = None
    """Where the work is done: ray divides it among the machines of a Ray cluster (docs/bulk/README.md). By default this
    process does it alone."""

    processes: int = 0
    """On a cluster, how many processes work; 0: one for each processor."""

    shard_lines: int = PREPARATION_SHARD_LINES
    """On a cluster, lines that are worked on as one. What cannot be read from the middle is one shard: a compressed
    file, CSV, TMX, a text file that is one document."""


def take_cluster_options(words: str, arguments: Sequence[str]) -> tuple[ClusterOptions, list[str]]:
    """The options of a cluster, and the other arguments; explains them, if help is asked for.

    Args:
        words: those of the command.
        arguments: its own.

    Raises:
        InputError: if one is wrong, or given without a cluster.
    """
    from ..training.console.input_error import InputError

    command_line = make_cluster_parser(words)
    joined = command_line.join_values(arguments)
    own = [word for word in joined if word.removeprefix("--").partition("=")[0] in command_line.fields]
    if not {"-h", "--help"}.isdisjoint(arguments):
        print(command_line.parser.format_help())
        return ClusterOptions(), list(arguments)
    options = ClusterOptions(**vars(command_line.parse(own)))
    if options.on is None and own:
        raise InputError(f"{own[0].partition('=')[0]} is for --on ray; give that too, or leave it out")
    return options, [word for word in joined if word not in own]


def make_cluster_parser(words: str) -> "CommandLine":
    """What parses the options of a cluster."""
    from ..training.recipe.command_line import CommandLine

    command_line = CommandLine(prog=words, usage=f"{words} [options] [the recipe's options]")
    command_line.add_class(ClusterOptions)
    return command_line


def plan(*arguments: str) -> None:
    """Work out what a model costs before it is trained: paperformer plan --preset NAME [overrides]."""
    from ..plan.options import PlanOptions

    is_help = not {"-h", "--help"}.isdisjoint(arguments)
    command_line = make_plan_parser(with_overrides=not is_help)
    if is_help:
        command_line.parser.print_help()  # which does not wait for torch
        return
    from ..plan.figures import make_plan
    from ..plan.model import make_configuration
    from ..plan.table import format_plan

    given = vars(command_line.parse(command_line.join_values(arguments), defaults=False))
    options = PlanOptions(**{field.name: given.pop(field.name) for field in fields(PlanOptions) if field.name in given})
    figures = make_plan(make_configuration(options, overrides=given), options)
    print(json.dumps(figures, indent=2) if options.json else format_plan(figures))


def make_plan_parser(*, with_overrides: bool = True) -> "CommandLine":
    """What parses the arguments of `plan`; without the fields of the configurations it does not wait for torch."""
    from ..plan.options import PlanOptions
    from ..training.recipe.command_line import CommandLine

    command_line = CommandLine(
        prog="paperformer plan",
        description="What a model costs before it is trained: parameters, FLOPs, memory, hours, and how much data "
        "suits it.",
        epilog=OVERRIDES,
    )
    command_line.add_class(PlanOptions)
    if with_overrides:
        from ..plan.model import find_overridable_fields

        for name, hint in find_overridable_fields().items():
            command_line.add_option(name, hint)
    return command_line
