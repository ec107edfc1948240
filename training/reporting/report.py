"""The report of a run: one HTML page with its scores, curves, events, samples and costs, for people.

The page is in `report.html.jinja`; here the run's records become what fills it. It needs nothing beside itself, neither
scripts nor files, and it can be made at any time: what is not there yet is left out, or said to be missing.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, StrictUndefined, Template

from ..atomic_files import replace_file
from ..recipe.run import RunOptions
from ..run_folder import RunFolder
from .comparison import read_run
from .display import readable_bytes

REPORT_FILE = "report.html"
"""The report, in the run's folder."""

POINTS = 300
"""At most so many points of a curve are drawn, and this is what a screen of that width can show."""

COLUMNS = 60
"""At most so many columns of the map of gradient norms."""

OUTPUTS = 10
"""At most so many outputs for one and the same sample input."""

LARGEST = 1e100
"""Figures beyond are as good as infinite."""

AMOUNTS = {
    "Learning rate": ("learning_rate", 1.0),
    "Gradient norm before clipping": ("gradient_norm", 1.0),
    "Speed, target tokens a second": ("tokens_per_second", 1.0),
    "Model FLOPs utilisation, %": ("utilisation", 0.01),
    "Padding, % of all positions": ("padding", 0.01),
    "Memory, GB": ("memory", 1e9),
}
"""Charts of figures that cannot be negative: title -> field of a record, and the unit to show it in."""

Point = tuple[int, float]
"""Step and value."""


def write_report(path: Path) -> Path:
    """Writes report.html into the folder of a run, whole or not at all, and returns its path.

    Whatever the run has not written yet is said to be missing, and a damaged file is named.

    Raises:
        InputError: if it cannot be written.
    """
    report = path / REPORT_FILE
    replace_file(report, build_report(path))
    return report


def build_report(path: Path) -> str:
    """The report of a run as HTML.

    Args:
        path: the folder of the run.
    """
    folder = RunFolder(RunOptions(name=path.resolve().name, output_dir=str(path.resolve().parent)))
    run = read_run(path)
    damaged: list[str] = []

    def read(file: Path, reader: Callable[[], Any], empty: Any) -> Any:
        try:
            return reader() if file.exists() else empty
        except (OSError, ValueError):  # not JSON, or not UTF-8
            damaged.append(file.name)
            return empty

    records = keep_records(read(folder.metrics_path, folder.metrics, []))
    samples = keep_records(read(folder.samples_path, folder.samples, []))
    test_samples_path = folder.evaluation_path / "samples.jsonl"
    return _template().render(
        run=run,
        problem=run.problem,
        charts=_draw_charts(records),
        heat_map=_map_norms(records),
        starts=[record for record in records if "hardware" in record],
        events=[record for record in records if "event" in record],
        sample_histories=follow_samples(samples),
        test_samples=[s for s in read(test_samples_path, lambda: _read_lines(test_samples_path), []) if _is_sample(s)],
        data=_summarise_data(read(folder.data_path, lambda: json.loads(folder.data_path.read_text("utf-8")), {})),
        tokens=_count_tokens(records),
        memory=max((value for _, value in collect_points(records, "memory")), default=None),
        recipe=read(folder.recipe_path, lambda: folder.recipe_path.read_text("utf-8"), ""),
        damaged=damaged,
        box={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM},
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    words = {"short": shorten_number, "duration": format_duration, "bytes": readable_bytes}
    environment.filters |= words | {"evenly": pick_evenly}
    return environment.from_string(resources.files(__package__).joinpath("report.html.jinja").read_text("utf-8"))


# --- records ---


def keep_records(records: Any) -> list[dict[str, Any]]:
    """The records that have the form of all records: a mapping with a step."""
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("step"), int)]


def _read_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _is_sample(sample: Any) -> bool:
    """Whether it has the form of all samples: texts, of which the last is what the model put out."""
    return isinstance(sample, list) and len(sample) in (2, 3)


def collect_points(records: Iterable[Mapping[str, Any]], name: str, unit: float = 1.0) -> list[Point]:
    """A figure by step; of a step that was done again, after a roll-back, the last value. Only what can be drawn."""
    values = {record["step"]: record[name] for record in records if name in record}
    return sorted((step, value / unit) for step, value in values.items() if _is_finite(value))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST  # neither NaN nor infinite


def _count_tokens(records: Sequence[Mapping[str, Any]]) -> float:
    """Target tokens trained on: speed by time, line by line."""
    total = before = 0.0
    for record in records:
        if _is_finite(record.get("tokens_per_second")) and _is_finite(record.get("seconds")):
            total += record["tokens_per_second"] * max(0.0, record["seconds"] - before)
            before = record["seconds"]
    return total


def _summarise_data(data: Any) -> list[dict[str, Any]]:
    """Of each split: its sources, the rows read and kept, and why the others were left out."""
    rows = []
    for split, report in data.items() if isinstance(data, dict) else ():
        try:
            reasons = {reason: count for reason, count in report["cleaning"]["dropped"].items() if count}
            for source in report["sources"]:
                reasons |= {reason: reasons.get(reason, 0) + count for reason, count in source["bad_lines"].items()}
            rows.append(
                {
                    "split": split,
                    "sources": [source["name"] for source in report["sources"]],
                    "rows": int(report["cleaning"]["rows"]),
                    "kept": int(report["cleaning"]["kept"]),
                    "left_out": ", ".join(f"{int(count):,} {reason}" for reason, count in reasons.items()),
                }
            )
        except (KeyError, TypeError, AttributeError, ValueError):  # a report of another version
            continue
    return rows


@dataclass(frozen=True)
class SampleHistory:
    """What the model has made of one input, validation by validation."""

    given: tuple[str, ...]
    """(source, reference) of a translation, (prompt,) of a language model."""

    outputs: list[tuple[int, str]]
    """(step, output)."""


def follow_samples(records: Iterable[Mapping[str, Any]]) -> list[SampleHistory]:
    """What the model has made of each input, from the records of samples.jsonl."""
    histories: dict[tuple[str, ...], dict[int, str]] = {}
    for record in records:
        samples = record.get("samples")
        for sample in samples if isinstance(samples, list) else ():
            if _is_sample(sample):
                *given, output = map(str, sample)
                histories.setdefault(tuple(given), {})[record["step"]] = output
    return [SampleHistory(given, pick_evenly(list(outputs.items()), OUTPUTS)) for given, outputs in histories.items()]


# --- curves ---

WIDTH, HEIGHT = 360.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 340.0, 8.0, 196.0
"""The box of the axes, in the same units."""


@dataclass(frozen=True)
class Line:
    """A curve of a chart."""

    name: str
    points: list[Point]

    path: str
    """As the attribute `points` of an SVG polyline."""

    @property
    def in_words(self) -> str:
        """Where it begins, where it ends, and where it is lowest and highest."""
        (first, begins), (last, ends) = self.points[0], self.points[-1]
        values = [value for _, value in self.points]
        return (
            f"{self.name} {shorten_number(begins)} at step {first:,} and {shorten_number(ends)} at step {last:,}, "
            f"lowest {shorten_number(min(values))}, highest {shorten_number(max(values))}"
        )


@dataclass(frozen=True)
class Chart:
    """Curves over steps that share their axes."""

    title: str
    lines: list[Line]

    x_ticks: list[tuple[float, str]]
    """Position and label."""

    y_ticks: list[tuple[float, str]]


def _draw_charts(records: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """All figures that there are at least two values of."""
    validations = [
        record["validation"] | {"step": record["step"]}
        for record in records
        if isinstance(record.get("validation"), dict)
    ]
    scores = dict.fromkeys(name for scores in validations for name in scores if name not in ("step", "loss"))
    losses = {"training": collect_points(records, "loss"), "validation": collect_points(validations, "loss")}
    charts = [draw_chart("Loss, nats a token", losses)]
    charts += [draw_chart(f"Validation {name}", {name: collect_points(validations, name)}) for name in scores]
    charts += [
        draw_chart(title, {"value": collect_points(records, *figure)}, low=0.0) for title, figure in AMOUNTS.items()
    ]
    return [chart for chart in charts if chart is not None]


def draw_chart(title: str, curves: Mapping[str, list[Point]], low: float = math.inf) -> Chart | None:
    """A chart of those curves that have points; None if none has two.

    Args:
        low: a value that the axis reaches down to at least.
    """
    curves = {name: points for name, points in curves.items() if points}
    if max(map(len, curves.values()), default=0) < 2:
        return None
    values = [value for points in curves.values() for _, value in points]
    last = max(points[-1][0] for points in curves.values())
    y_ticks = choose_ticks(min(low, *values), max(values))

    def x(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * step / max(1, last)

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])

    lines = [
        Line(name, points, " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in thin_curve(points)))
        for name, points in curves.items()
    ]
    x_ticks = [(x(step), shorten_number(step, 6)) for step in choose_ticks(0, last) if step <= last]
    return Chart(title, lines, x_ticks, [(y(tick), shorten_number(tick, 6)) for tick in y_ticks])


def choose_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` or just below to `high` or just above, at least two."""
    largest = max(abs(low), abs(high))
    span = max(high - low, 1e-6 * largest)  # values may be equal, or differ by rounding only
    if span < 1 / LARGEST:
        span = 1.0
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= span / about * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def thin_curve(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """The points of a curve that show: of each of many short stretches, the lowest and the highest."""
    length = math.ceil(len(points) / (most / 2))
    if length <= 2:
        return list(points)
    shown = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        shown += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return shown


def pick_evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


# --- the map of gradient norms ---


@dataclass(frozen=True)
class HeatMap:
    """The largest gradient norm of each layer in each stretch of steps."""

    steps: list[int]
    """The last step of each column."""

    rows: dict[str, list[tuple[float, float] | None]]
    """Layer -> norm and shade of each column, from 0 (the smallest norm of all) to 1, on a logarithmic scale."""

    extremes: tuple[float, float]


def _map_norms(records: Iterable[Mapping[str, Any]]) -> HeatMap | None:
    by_step = {
        record["step"]: record["gradient_norm_by_layer"]
        for record in records
        if isinstance(record.get("gradient_norm_by_layer"), dict)
    }
    steps = sorted(by_step)
    layers = list(dict.fromkeys(layer for step in steps for layer in by_step[step]))
    starts = range(0, len(steps), max(1, math.ceil(len(steps) / COLUMNS)))

    def read(norm: Any) -> float:
        return float(norm) if _is_finite(norm) and norm > 0 else math.nan

    norms = np.array([[read(by_step[step].get(layer)) for step in steps] for layer in layers])
    if len(starts) < 2 or np.isnan(norms).all():
        return None
    largest = np.fmax.reduceat(norms, starts, axis=1)  # (layers, columns), NaN where there is none
    low, high = float(np.nanmin(largest)), float(np.nanmax(largest))
    shades = (np.log(largest) - math.log(low)) / (math.log(high) - math.log(low) or 1.0)
    rows = {
        layer: [None if math.isnan(norm) else (norm, shade) for norm, shade in zip(*pair, strict=True)]
        for layer, *pair in zip(layers, largest.tolist(), shades.tolist(), strict=True)
    }
    return HeatMap([steps[end - 1] for end in [*starts[1:], len(steps)]], rows, (low, high))


# --- words ---


def shorten_number(value: float, digits: int = 4) -> str:
    """A number in few letters: 0.0312, 4.25, 9500, 12k, 1.5M, 2.13e+15."""
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1e3:.{digits}g}k"
    if 1e6 <= abs(value) < 1e9:
        return f"{value / 1e6:.{digits}g}M"
    return f"{value:.{digits}g}"


def format_duration(seconds: float) -> str:
    """Hours, minutes, seconds, the two largest: `2 h 5 min`, `3 min 20 s`, `12 s`."""
    total = round(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {total % 60} s" if minutes else f"{total} s"
