"""The command that looks back on training runs: all in a table, one in full, several side by side."""

import json as json_format
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..training.console.input_error import InputError
from ..training.console.progress import say
from ..training.console.suggestions import suggest
from ..training.console.tables import GAP, align_rows, find_screen_width, measure_width

if TYPE_CHECKING:
    from ..training.reporting.comparison import RunRecord, ScoreRow

LONGEST_NAME = 28  # columns of the screen; longer names go on in the next line
NARROWEST_RUN = 16  # the same, of a run that stands beside others
CURVE_ROWS = 20
EVENTS_SHOWN = 10
MARK = "* "


def runs(
    names: tuple[str, ...], output_dir: str = "runs", json: bool = False, report: bool = False, web: bool = False
) -> None:
    """List training runs, show one in full, or compare several: paperformer runs [NAME ...].

    With --web as a page in the browser, a file that needs no server: of all runs, a table to be sorted and filtered
    with their curves (runs.html); of one, its report; of several, the same of those (comparison.html), and whether the
    others are better than the first; of two also in which sentences. docs/reports.md shows it.

    Args:
        names: Names of runs: none lists all, the newest first; one shows that run; several compares their scores and
            the fields of their recipes that differ.
        output_dir: Folder of the runs.
        json: Print JSON instead of a table.
        report: Write report.html, with curves and samples, into the folder of each named run.
        web: Write a page and open it in the browser; where there is none, as over ssh, say only where the page is.
    """
    if web and (json or report):
        raise InputError("--web is a page of its own; give it without --json and --report")
    folder = Path(output_dir)
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; give the folder of the runs: --output_dir FOLDER")
    if report and not names:
        raise InputError("--report needs the name of a run, or several")
    if web:
        _show_page(names, folder)
        return
    from ..training.reporting.comparison import list_runs  # which takes seconds

    found = _named_runs(names, folder) if names else list_runs(folder)
    if report:
        from ..training.reporting.report import write_report

        for run in found:
            print(write_report(run.path))
    elif json:
        from ..training.run_folder import nulled

        records = [
            nulled(vars(run) | {"test": [score.record() for score in run.test], "state": run.state}) for run in found
        ]
        print(json_format.dumps(records, indent=2, ensure_ascii=False, default=str))
    elif not names:
        print(_table(found) if found else f"no runs in {folder}")
    else:
        print(_in_full(found[0]) if len(found) == 1 else _comparison(found))


def _show_page(names: Sequence[str], folder: Path) -> None:
    """Writes the page of all runs or of some, says where it is, and opens it.

    Raises:
        InputError: if there is none of a name, or the page cannot be written.
    """
    from ..training.console.browser import open_page
    from ..training.reporting.report import write_report
    from ..training.reporting.runs_page import write_runs_page

    chosen = _existing_names(names, folder)
    notes: list[str] = []
    if len(chosen) == 1:
        page = write_report(folder / chosen[0])
    else:
        page, notes = write_runs_page(folder, chosen)
    for note in notes:
        say(f"a report is missing: {note}")
    print(page)
    if not open_page(page.resolve().as_uri()):
        say("there is no browser here; open that file where there is one")


def _existing_names(names: Sequence[str], folder: Path) -> list[str]:
    """The names, each once.

    Raises:
        InputError: if there is no folder of a name.
    """
    there = [path.name for path in folder.iterdir() if path.is_dir()]
    for name in names:
        is_inner = not Path(name).is_absolute() and ".." not in Path(name).parts  # such as a sweep's: sweep/pre-seed1
        if name not in there and not (is_inner and (folder / name / "recipe.yaml").is_file()):
            hint = suggest(name, there, f"paperformer runs --output_dir {folder} lists them")
            raise InputError(f"there is no run {name} in {folder}; {hint}")
    return list(dict.fromkeys(names))


def _named_runs(names: Sequence[str], folder: Path) -> "list[RunRecord]":
    """The runs of these names, in this order.

    Raises:
        InputError: if there is none of a name, or if it cannot be read.
    """
    from ..training.reporting.comparison import read_run

    found = []
    for name in _existing_names(names, folder):
        run = read_run(folder / name)
        if run.problem:
            raise InputError(f"{run.path} cannot be shown: {run.problem}")
        found.append(run)
    return found


def _table(found: "Sequence[RunRecord]") -> str:
    """A line for each run; the last columns only as far as the screen is wide."""
    columns: dict[str, Callable[[RunRecord], str]] = {
        "run": lambda run: run.name,
        "task": lambda run: run.task,
        "steps": lambda run: run.state,
        "validation": lambda run: "" if run.best is None else f"{run.select_by} {run.best:.3f}",
        "test": lambda run: f"{run.test[0].metric.name} {run.test[0].value:.3f}" if run.test else "",
        "changed": lambda run: f"{run.changed:%Y-%m-%d}",
        "minutes": _minutes,
        "tokens/s": _speed,
        "parameters": _parameters,
    }
    rows = [list(columns), *([cell(run) for cell in columns.values()] for run in found)]
    name_width = min(LONGEST_NAME, measure_width([row[:1] for row in rows]))
    while name_width + len(GAP) + measure_width([row[1:] for row in rows]) > find_screen_width():
        rows = [row[:-1] for row in rows]
    numbers = [index for index, name in enumerate(columns) if name in ("minutes", "tokens/s", "parameters")]
    return align_rows(rows, right=numbers, widest={0: name_width})


def _in_full(run: "RunRecord") -> str:
    from ..training.reporting.comparison import changed_fields

    parts = {"": _named_values({name: value for name, value in _facts(run).items() if value})}
    if changed := changed_fields(run):
        parts["not at its default"] = _named_values({f"  {name}": _text(value) for name, value in changed.items()})
    if run.validation:
        parts["validation"] = _curve(run)
    if run.test:
        parts["test"] = _named_values(
            {f"  {score.metric.label}": f"{score.shown}  ({score.basis})" for score in run.test}
        )
    if run.events:
        last = f", the last {EVENTS_SHOWN}" if len(run.events) > EVENTS_SHOWN else ""
        rows = [
            [f"  step {event.get('at_step', event['step']):,}", _event(event)] for event in run.events[-EVENTS_SHOWN:]
        ]
        width = find_screen_width() - len(GAP) - measure_width([row[:1] for row in rows])
        parts[f"events: {len(run.events):,}{last}"] = align_rows(rows, widest={1: width})
    return "\n\n".join(f"{title}\n{part}" if title else part for title, part in parts.items())


def _event(event: Mapping[str, Any]) -> str:
    return ", ".join(str(event[name]) for name in ("event", "action", "reason") if event.get(name))


def _facts(run: "RunRecord") -> dict[str, str]:
    """What a run is, and what it took; empty where it is not known."""
    energy = "" if run.joules is None else f"{run.joules / 3.6e6:.3g} kWh, {run.energy_source}"
    return {
        "run": run.name,
        "folder": str(run.path),
        "task": run.task,
        "steps": run.state if run.is_finished or not run.step else f"{run.state}, running or interrupted",
        "changed": f"{run.changed:%Y-%m-%d %H:%M}",
        "parameters": _parameters(run),
        "hardware": ", then ".join(run.hardware),
        "minutes": _minutes(run),
        "tokens/s": _speed(run),
        "utilisation": "" if run.utilisation is None else f"{run.utilisation:.1%} of peak FLOPs",
        "energy": energy,
        "weights": run.chosen or "",
    }


def _named_values(values: Mapping[str, str]) -> str:
    """A line for each, whose values go on in the next line where the screen ends."""
    rows = [[name, value] for name, value in values.items()]
    return align_rows(rows, widest={1: find_screen_width() - len(GAP) - measure_width([row[:1] for row in rows])})


def _curve(run: "RunRecord") -> str:
    """Validation scores by step, thinned out evenly; the best step and the last are always there."""
    steps, best = sorted(run.validation), run.best_step
    stride = math.ceil(len(steps) / CURVE_ROWS)
    metrics = list(dict.fromkeys(metric for scores in run.validation.values() for metric in scores))
    rows = [["  step", *metrics]]
    for step in steps:
        if step in steps[::stride] or step in (best, steps[-1]):
            marks = [MARK if step == best and metric == run.select_by else "" for metric in metrics]
            scores = [run.validation[step].get(metric, math.nan) for metric in metrics]
            rows.append([f"  {step:,}", *(f"{mark}{score:.4f}" for mark, score in zip(marks, scores, strict=True))])
    return align_rows(rows, right=range(len(rows[0])))


def _comparison(found: "Sequence[RunRecord]") -> str:
    """Scores and differing fields side by side, as many runs at a time as the screen is wide enough for."""
    from ..training.reporting.comparison import differing_fields, score_rows

    scores = score_rows(found)
    rows = [
        ["", *(run.name for run in found)],
        ["steps", *(run.state for run in found)],
        ["minutes", *map(_minutes, found)],
        ["tokens/s", *map(_speed, found)],
        ["parameters", *map(_parameters, found)],
        *([f"{row.split} {row.metric.name}", *_marked(row)] for row in scores),
    ]
    rows += [
        [name, *(_text(run.recipe[name]) if name in run.recipe else "" for run in found)]
        for name in differing_fields(found)
    ]

    left = find_screen_width() - measure_width([row[:1] for row in rows])
    at_once = min(len(found), left // (NARROWEST_RUN + len(GAP)))
    columns = range(1, at_once + 1)
    widest = dict.fromkeys(columns, left // at_once - len(GAP))
    parts = [
        align_rows([[row[0], *row[1:][first : first + at_once]] for row in rows], right=columns, widest=widest)
        for first in range(0, len(found), at_once)
    ]
    notes = ["* the best"] if any(row.best is not None for row in scores) else []
    notes += [
        f"{row.split} {row.metric.name} is not measured on the same text in the same way: no best"
        for row in scores
        if not row.is_comparable
    ]
    return "\n\n".join([*parts, "\n".join(notes)]).rstrip()


def _marked(row: "ScoreRow") -> list[str]:
    """The cells of a score, its best marked."""
    return [
        "" if value is None else f"{MARK if value == row.best else ''}{value:.{row.digits}f}" for value in row.values
    ]


def _minutes(run: "RunRecord") -> str:
    return f"{run.seconds / 60:,.1f}" if run.seconds else ""


def _speed(run: "RunRecord") -> str:
    return "" if run.tokens_per_second is None else f"{run.tokens_per_second:,.0f}"


def _parameters(run: "RunRecord") -> str:
    return "" if run.parameters is None else f"{run.parameters:,}"


def _text(value: Any) -> str:
    """A value of a recipe as its file has it."""
    if isinstance(value, str):
        return value
    return json_format.dumps(value, ensure_ascii=False)
