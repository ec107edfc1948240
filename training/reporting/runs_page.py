"""The page of runs: all of a folder in a table, their curves in the same charts, in what their recipes differ; and of
those that were named, whether the others are better than the first, and of two in which sentences.

It is one file that needs nothing beside itself and asks nobody for anything, so that it can be opened without a server,
sent to somebody and looked at in years. Links lead to the reports of the runs, in their folders.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..atomic_files import replace_file
from ..console.input_error import InputError
from ..console.progress import ProgressBar
from ..evaluation.scored_split import ScoredSplit, compare_splits, read_scored_split
from ..evaluation.significance import Comparison, correct_p_values
from ..recipe.run import RunOptions
from ..run_folder import RunFolder
from .comparison import DAMAGE, RunRecord, differing_fields, list_runs, read_run, score_rows
from .curves import COLOURS, DASHES, Records, collect_charts, describe_charts, keep_records
from .report import REPORT_FILE, write_report
from .sentences import Sentences, find_differences
from .templates import load_template

ALL_RUNS_FILE = "runs.html"
COMPARISON_FILE = "comparison.html"
"""In the folder of the runs: of all of them, and of those that were named."""

HOLDS_RUNS = "holds runs"
NO_RUN = {"not a run", HOLDS_RUNS, "unreadable"}
"""What is wrong with folders that have no report."""

CANNOT_BE_READ = "what they have scored cannot be read"

LONGEST_VALUE = 60
"""Characters of a recipe's field that a cell shows."""


@dataclass(frozen=True)
class Cell:
    """Of the table."""

    text: str = ""
    value: float | None = None
    """By which it is sorted; None of a text."""

    is_best: bool = False


@dataclass(frozen=True)
class Row:
    """A run in the table."""

    name: str
    place: int | None
    """Among those that have curves."""

    looks: str
    """Of its curves."""

    task: str
    state: str
    kind: str
    """finished, unfinished or damaged."""

    report: str | None
    """Where its report is, from the page."""

    cells: list[Cell]


@dataclass(frozen=True)
class Pair:
    """What is to be said of two runs beyond their figures."""

    names: tuple[str, str]
    """Baseline and system."""

    fields: Mapping[str, Sequence[str]]
    """In which their recipes differ, with the values of both."""

    comparisons: Sequence[Comparison] = ()
    untested: str = ""
    """Why there are none."""

    sentences: Sentences | None = None


@dataclass(frozen=True)
class Trial:
    """One metric of a run, against the first of several."""

    name: str
    """Of the run."""

    comparison: Comparison
    corrected: float
    """Its p-value, as one of several."""

    @property
    def verdict(self) -> str:
        """Of the run, by the corrected p-value."""
        return replace(self.comparison, p_value=self.corrected).verdict


@dataclass(frozen=True)
class Several:
    """What is to be said of more than two runs beyond their figures."""

    baseline: str
    trials: Sequence[Trial]
    untested: Mapping[str, str]
    """Of the other runs, why."""


@dataclass
class _Columns:
    """The table's, as they come in."""

    titles: list[str] = field(default_factory=list)
    are_options: list[bool] = field(default_factory=list)
    cells: list[list[Cell]] = field(default_factory=list)
    """By column."""

    def add(self, title: str, cells: list[Cell], *, is_option: bool = False) -> None:
        self.titles.append(title)
        self.are_options.append(is_option)
        self.cells.append(cells)


def find_runs(output_dir: Path) -> dict[str, RunRecord]:
    """The runs of a folder and of the folders in it, as sweeps have them, by their paths within it."""
    found: dict[str, RunRecord] = {}
    for run in list_runs(output_dir):
        inner = list_runs(run.path) if run.problem == HOLDS_RUNS else []
        found |= {f"{run.name}/{each.name}": each for each in inner if each.problem not in NO_RUN} or {run.name: run}
    return found


def write_runs_page(output_dir: Path, names: Sequence[str] = ()) -> tuple[Path, list[str]]:
    """Writes the page of all runs of a folder, or of some, and the reports of theirs that are missing or out of date.

    Args:
        output_dir: the folder of the runs, in which the page comes to lie.
        names: of the runs; none stands for all. They are compared with the first.

    Returns:
        Where it is, and what could not be done.

    Raises:
        InputError: if it cannot be written.
    """
    runs = {name: read_run(output_dir / name) for name in names} if names else find_runs(output_dir)
    notes: list[str] = []
    reports: dict[str, str] = {}
    with ProgressBar(list(runs.items()), desc="reports", unit=" runs") as bar:
        for name, run in bar:
            if run.problem in NO_RUN:
                continue
            try:
                if _is_out_of_date(run.path):
                    write_report(run.path)
            except InputError as error:
                notes.append(str(error))
            if (run.path / REPORT_FILE).is_file():
                reports[name] = quote(f"{name}/{REPORT_FILE}")
    page = output_dir / (COMPARISON_FILE if names else ALL_RUNS_FILE)
    replace_file(page, build_runs_page(output_dir.name, runs, reports, is_tested=bool(names)))
    return page, notes


def _is_out_of_date(path: Path) -> bool:
    """Whether a run has no report, or one from before its last figures."""
    report = path / REPORT_FILE
    sources = [each for each in (path / "metrics.jsonl", path / "evaluation") if each.exists()]
    return not report.exists() or any(each.stat().st_mtime > report.stat().st_mtime for each in sources)


def build_runs_page(
    title: str, runs: Mapping[str, RunRecord], reports: Mapping[str, str], *, is_tested: bool = False
) -> str:
    """The page as HTML.

    Args:
        title: of the page.
        runs: by name; those that have a problem are in the table only.
        reports: where the report of each is.
        is_tested: whether of more than two runs the others are tested against the first.
    """
    good = {name: run for name, run in runs.items() if not run.problem}
    records = {name: _read_records(run.path) for name, run in good.items()}
    charts = collect_charts(records, is_overview=len(runs) > 2)
    is_pair = len(runs) == len(good) == 2
    columns = _make_columns(list(good.values()), has_options=not is_pair)
    places = {name: place for place, name in enumerate(good)}
    rows = [_make_row(name, run, places.get(name), reports.get(name), columns) for name, run in runs.items()]
    return load_template("runs.html.jinja").render(
        title=title,
        rows=rows,
        titles=list(zip(columns.titles, columns.are_options, strict=True)),
        tasks=sorted({row.task for row in rows if row.task}),
        kinds=[kind for kind in ("finished", "unfinished", "damaged") if any(row.kind == kind for row in rows)],
        charts=charts,
        has_keys=len(runs) <= 2,
        data_of_charts=describe_charts(charts, records),
        pair=_compare(*good.items()) if is_pair else None,
        several=_compare_several(good) if is_tested and len(good) > 2 and next(iter(runs)) in good else None,
    )


def _read_records(path: Path) -> Records:
    folder = RunFolder(RunOptions(name=path.resolve().name, output_dir=str(path.resolve().parent)))
    return keep_records(folder.metrics())


def _make_columns(runs: Sequence[RunRecord], *, has_options: bool) -> _Columns:
    """The figures of runs, and if wanted the fields in which their recipes differ."""
    columns = _Columns()
    for row in score_rows(runs):
        best = row.best
        shown = [
            Cell() if value is None else Cell(f"{value:.{row.digits}f}", value, best is not None and value == best)
            for value in row.values
        ]
        columns.add(f"{row.metric.title}, {row.split}", shown)
    columns.add("steps", [Cell(f"{run.step:,}", run.step) for run in runs])
    columns.add("minutes", [_number(run.seconds / 60 or None, ",.1f") for run in runs])
    columns.add("tokens/s", [_number(run.tokens_per_second, ",.0f") for run in runs])
    columns.add("parameters", [_number(run.parameters, ",") for run in runs])
    columns.add("changed", [Cell(f"{run.changed:%Y-%m-%d %H:%M}", run.changed.timestamp()) for run in runs])
    for name in differing_fields(runs) if has_options else ():
        columns.add(name, [_value(run.recipe.get(name)) for run in runs], is_option=True)
    return columns


def _number(value: float | None, form: str) -> Cell:
    return Cell() if value is None else Cell(f"{value:{form}}", value)


def _value(value: Any) -> Cell:
    """A field of a recipe as its file has it; a long one is cut."""
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return Cell(f"{value:g}" if isinstance(value, float) else str(value), value)
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Cell(text if len(text) <= LONGEST_VALUE else f"{text[: LONGEST_VALUE - 2]} …")


def _make_row(name: str, run: RunRecord, place: int | None, report: str | None, columns: _Columns) -> Row:
    if place is None:
        looks, cells = "", [Cell() for _ in columns.titles]
    else:
        looks = f"pf-c{place % COLOURS} pf-d{place // COLOURS % DASHES}"
        cells = [column[place] for column in columns.cells]
    kind = "damaged" if run.problem else "finished" if run.is_finished else "unfinished"
    return Row(name, place, looks, "" if run.problem else run.task, run.state, kind, report, cells)


def _compare(baseline: tuple[str, RunRecord], system: tuple[str, RunRecord]) -> Pair:
    """Whether one of two runs is better than the other, and in which sentences."""
    names, runs = (baseline[0], system[0]), (baseline[1], system[1])
    fields = {name: [_value(run.recipe.get(name)).text for run in runs] for name in differing_fields(runs)}
    try:
        comparisons, untested, splits = _test(*runs)
        return Pair(names, fields, comparisons, untested, find_differences(*splits, names) if splits else None)
    except DAMAGE as error:
        return Pair(names, fields, untested=f"{CANNOT_BE_READ}: {error}")


def _compare_several(runs: Mapping[str, RunRecord]) -> Several:
    """Whether runs are better than the first of them, each of which has a chance to be so by luck."""
    (baseline, first), *others = runs.items()
    found: list[tuple[str, Comparison]] = []
    untested = {}
    with ProgressBar(others, desc="tests of significance", unit=" runs") as bar:
        for name, run in bar:
            try:
                comparisons, untested[name], _ = _test(first, run)
                found += [(name, one) for one in comparisons]
            except DAMAGE as error:
                untested[name] = f"{CANNOT_BE_READ}: {error}"
    trials = []
    for metric in dict.fromkeys(one.metric for _, one in found):
        those = [(name, one) for name, one in found if one.metric == metric]
        corrected = correct_p_values([one.p_value for _, one in those])
        trials += [Trial(name, one, p_value) for (name, one), p_value in zip(those, corrected, strict=True)]
    return Several(baseline, trials, {name: reason for name, reason in untested.items() if reason})


_Tested = tuple[list[Comparison], str, tuple[ScoredSplit, ScoredSplit] | None]


def _test(baseline: RunRecord, system: RunRecord) -> _Tested:
    """Tests whether one of two runs is better than the other; or why not; and what both have scored, if they have."""
    if not (baseline.test and system.test):
        return [], "both have to be finished first", None
    first, second = (read_scored_split(run.path / "evaluation") for run in (baseline, system))
    return *compare_splits(first, second), (first, second)
