"""The command that trains a table of runs and compares them."""

import sys

from ..training.console.progress import say
from ..training.console.tables import align_rows


def sweep(*arguments: str) -> None:
    """Train a table of runs that differ in some fields, and compare them: paperformer sweep NAME|FILE [options]."""
    from ..sweeps.options import read_options, sweep_parser

    if not arguments or not {"-h", "--help"}.isdisjoint(arguments):
        sweep_parser().parser.print_help()  # which does not wait for torch
        return
    options, fields = read_options(arguments)
    from ..sweeps.carrying_out import carry_out
    from ..sweeps.rows import as_text, make_sweep
    from ..training.engine.stop_request import TrainingStopped
    from ..training.run import make_quiet

    planned = make_sweep(options, fields)
    if options.check:
        lines = [[row.name, ", ".join(f"{field} {as_text(value)}" for field, value in row.fields.items())]
                 for row in planned.rows]  # fmt: skip
        print(align_rows([["row", "differs in"], *lines]))
        return
    make_quiet()
    try:
        table = carry_out(planned)
    except TrainingStopped as stopped:
        say(f"{stopped}; the same command goes on with the sweep")
        sys.exit(130)
    except KeyboardInterrupt:
        say("interrupted; the same command goes on with the sweep")
        sys.exit(130)
    print(table.markdown)
    say(f"table: {table.path}")
