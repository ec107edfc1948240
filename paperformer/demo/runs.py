"""Training runs of a folder: which there are, how they go, and how they compare."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ..training.recipe.run import RunOptions
from ..training.reporting.comparison import RunRecord, differing_fields, read_run, score_rows
from ..training.reporting.curves import collect_charts, keep_records, show_chart
from ..training.reporting.report import follow_samples
from ..training.run_folder import RunFolder
from .markup import show_state


def list_names(output_dir: Path) -> list[str]:
    """The runs of a folder and of the folders in it, as paths within it; the one that wrote last comes first."""
    found = [path.parent for pattern in ("*", "*/*") for path in output_dir.glob(f"{pattern}/recipe.yaml")]
    return [str(path.relative_to(output_dir)) for path in sorted(found, key=_written_at, reverse=True)]


def _written_at(path: Path) -> float:
    metrics = path / "metrics.jsonl"
    return (metrics if metrics.exists() else path).stat().st_mtime


def stamp(output_dir: Path, names: Sequence[str]) -> tuple[Any, ...]:
    """What changes when there is something new to show of some runs."""
    files = [output_dir / name / file for name in names for file in ("metrics.jsonl", "samples.jsonl", "model")]
    return tuple((str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in files if file.exists())


def show_runs(output_dir: Path, names: Sequence[str]) -> str:
    """Some runs as HTML: how far they are, their curves, what they put out, and in what they differ."""
    runs = {name: read_run(output_dir / name) for name in names if (output_dir / name).is_dir()}
    if not runs:
        return show_state("empty", "Choose a run, or several to compare them.")
    parts = [show_state("failed", f"{name}: {run.problem}") for name, run in runs.items() if run.problem]
    good = {name: run for name, run in runs.items() if not run.problem}
    if not good:
        return "".join(parts)
    parts.append(_show_table(good))
    folders = {name: _folder(output_dir / name) for name in good}
    charts = collect_charts({name: keep_records(folder.metrics()) for name, folder in folders.items()})
    figures = "".join(f"<figure>{show_chart(chart, heading='h4')}</figure>" for chart in charts)
    nothing = show_state("empty", "There are too few figures for a curve yet.")
    parts.append(f'<div class="pf-charts">{figures}</div>' if charts else nothing)
    parts.append(_show_differences(good))
    parts += [_show_samples(name, folder, titled=len(good) > 1) for name, folder in folders.items()]
    return "".join(parts)


def _folder(path: Path) -> RunFolder:
    return RunFolder(RunOptions(name=path.resolve().name, output_dir=str(path.resolve().parent)))


def _show_table(runs: dict[str, RunRecord]) -> str:
    """How far runs are, and their scores."""
    records = list(runs.values())
    rows = [
        _row("steps", [run.state for run in records]),
        _row("minutes", [f"{run.seconds / 60:,.1f}" for run in records]),
        _row("parameters", ["" if run.parameters is None else f"{run.parameters:,}" for run in records]),
    ]
    for score in score_rows(records):
        best = [value is not None and value == score.best for value in score.values]
        values = ["" if value is None else f"{value:.{score.digits}f}" for value in score.values]
        rows.append(_row(f"{score.split} {score.metric.name}", values, best))
    return _table(runs, rows)


def _show_differences(runs: dict[str, RunRecord]) -> str:
    """The fields in which the recipes of runs differ."""
    records = list(runs.values())
    rows = [_row(name, [str(run.recipe.get(name, "")) for run in records]) for name in differing_fields(records)]
    if not rows:
        return ""
    title = "In what their recipes differ"
    return f'<details class="pf-samples" open><summary>{title}</summary>{_table(runs, rows)}</details>'


def _table(names: Iterable[str], rows: Sequence[str]) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return (
        f'<div class="pf-scroll" tabindex="0"><table class="pf-table"><thead><tr><th></th>{heads}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _row(title: str, values: Sequence[str], best: Sequence[bool] = ()) -> str:
    cells = "".join(
        f'<td class="pf-number{" pf-best" if best and best[place] else ""}">{escape(value)}</td>'
        for place, value in enumerate(values)
    )
    return f'<tr><th scope="row">{escape(title)}</th>{cells}</tr>'


def _show_samples(name: str, folder: RunFolder, *, titled: bool) -> str:
    """What a run has put out for the same inputs at each validation."""
    histories = follow_samples(keep_records(folder.samples())) if folder.samples_path.exists() else []
    blocks = []
    for history in histories:
        given = " → ".join(" ".join(text.split()) for text in history.given)
        rows = "".join(
            f'<tr><th scope="row">{step:,}</th><td>{escape(output)}</td></tr>' for step, output in history.outputs
        )
        blocks.append(
            f'<div class="pf-sample pf-scroll"><table class="pf-table"><caption class="pf-hint">{escape(given)}'
            f'</caption><thead><tr><th scope="col">step</th><th scope="col">output</th></tr></thead>'
            f"<tbody>{rows}</tbody></table></div>"
        )
    title = f"Samples over time: {name}" if titled else "Samples over time"
    if not blocks:
        return ""
    return f'<details class="pf-samples" open><summary>{escape(title)}</summary>{"".join(blocks)}</details>'
