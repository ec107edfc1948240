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

from jinja2 import Environment, StrictUndefined, Template

from .engine.display import readable_bytes
from .options.run import RunOptions
from .run_comparison import read_run
from .run_folder import RunFolder, replace_file

REPORT_FILE = "report.html"
"""The report, in the run's folder."""

POINTS = 300
"""At most so many points of a curve are drawn, and this is what a screen of that width can show."""

ROWS = 20
"""At most so many rows of a table of a curve."""

COLUMNS = 60
"""At most so many columns of the map of gradient norms."""

OUTPUTS = 10
"""At most so many outputs for one and the same sample input."""

LARGEST = 1e100
"""Figures beyond are as good as infinite."""

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

    records = _mappings(read(folder.metrics_path, folder.metrics, []))
    samples = _mappings(read(folder.samples_path, folder.samples, []))
    test_samples_path = folder.evaluation_path / "samples.jsonl"
    return _template().render(
        run=run,
        problem=run.problem,
        charts=_charts(records),
        heat_map=_heat_map(records),
        starts=[record for record in records if "hardware" in record],
        events=[record for record in records if "event" in record],
        sample_histories=_sample_histories(samples),
        test_samples=[s for s in read(test_samples_path, lambda: _json_lines(test_samples_path), []) if _is_sample(s)],
        data=_data_rows(read(folder.data_path, lambda: json.loads(folder.data_path.read_text("utf-8")), {})),
        tokens=_tokens(records),
        memory=max((value for _, value in _points(records, "memory")), default=None),
        recipe=read(folder.recipe_path, lambda: folder.recipe_path.read_text("utf-8"), ""),
        damaged=damaged,
        box={"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": RIGHT, "bottom": BOTTOM},
        readable_bytes=readable_bytes,
    )


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"short": short_number, "duration": duration}
    return environment.from_string(
        resources.files("paperformer.training").joinpath("report.html.jinja").read_text("utf-8")
    )


# --- records ---


def _mappings(records: Any) -> list[dict[str, Any]]:
    """The records that have the form of all records: a mapping with a step."""
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("step"), int)]


def _json_lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line]


def _is_sample(sample: Any) -> bool:
    """Whether it has the form of all samples: texts, of which the last is what the model put out."""
    return isinstance(sample, list) and len(sample) in (2, 3)


def _points(records: Iterable[Mapping[str, Any]], name: str) -> list[Point]:
    """A figure by step; of a step that was done again, after a roll-back, the last value. Only what can be drawn."""
    values = {record["step"]: record[name] for record in records if name in record}
    return sorted((step, float(value)) for step, value in values.items() if _is_finite(value))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST  # neither NaN nor infinite


def _tokens(records: Sequence[Mapping[str, Any]]) -> float:
    """Target tokens trained on: speed by time, line by line."""
    total = before = 0.0
    for record in records:
        if _is_finite(record.get("tokens_per_second")) and _is_finite(record.get("seconds")):
            total += record["tokens_per_second"] * max(0.0, record["seconds"] - before)
            before = record["seconds"]
    return total


def _data_rows(data: Any) -> list[dict[str, Any]]:
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


def _sample_histories(records: Iterable[Mapping[str, Any]]) -> list[SampleHistory]:
    histories: dict[tuple[str, ...], dict[int, str]] = {}
    for record in records:
        samples = record.get("samples")
        for sample in samples if isinstance(samples, list) else ():
            if _is_sample(sample):
                *given, output = map(str, sample)
                histories.setdefault(tuple(given), {})[record["step"]] = output
    return [SampleHistory(given, evenly(list(outputs.items()), OUTPUTS)) for given, outputs in histories.items()]


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
    def rows(self) -> list[Point]:
        """Some of its points, for the table."""
        return evenly(self.points, ROWS)

    @property
    def in_words(self) -> str:
        """Where it begins, where it ends, and where it is lowest and highest."""
        (first, begins), (last, ends) = self.points[0], self.points[-1]
        values = [value for _, value in self.points]
        return (
            f"{self.name} {short_number(begins)} at step {first:,} and {short_number(ends)} at step {last:,}, "
            f"lowest {short_number(min(values))}, highest {short_number(max(values))}"
        )


@dataclass(frozen=True)
class Chart:
    """Curves over steps that share their axes."""

    title: str
    lines: list[Line]

    x_ticks: list[tuple[float, str]]
    """Position and label."""

    y_ticks: list[tuple[float, str]]


def _charts(records: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """All figures that there are at least two values of."""
    validations = [
        record["validation"] | {"step": record["step"]}
        for record in records
        if isinstance(record.get("validation"), dict)
    ]
    scores = dict.fromkeys(name for scores in validations for name in scores if name not in ("step", "loss"))
    memory = [(step, value / 1e9) for step, value in _points(records, "memory")]
    padding = [(step, 100 * value) for step, value in _points(records, "padding")]
    utilisation = [(step, 100 * value) for step, value in _points(records, "utilisation")]
    losses = {"training": _points(records, "loss"), "validation": _points(validations, "loss")}
    charts = [_chart("Loss, nats a token", losses)]
    charts += [_chart(f"Validation {name}", {name: _points(validations, name)}) for name in scores]
    for title, points in (
        ("Learning rate", _points(records, "learning_rate")),
        ("Gradient norm before clipping", _points(records, "gradient_norm")),
        ("Speed, target tokens a second", _points(records, "tokens_per_second")),
        ("Model FLOPs utilisation, %", utilisation),
        ("Padding, % of all positions", padding),
        ("Memory, GB", memory),
    ):
        charts.append(_chart(title, {"value": points}, low=0.0))
    return [chart for chart in charts if chart is not None]


def _chart(title: str, curves: Mapping[str, list[Point]], low: float = math.inf) -> Chart | None:
    """A chart of those curves that have points; None if none has two.

    Args:
        low: a value that the axis reaches down to at least.
    """
    curves = {name: points for name, points in curves.items() if points}
    if max(map(len, curves.values()), default=0) < 2:
        return None
    values = [value for points in curves.values() for _, value in points]
    last = max(points[-1][0] for points in curves.values())
    y_ticks = round_ticks(min(low, *values), max(values))

    def x(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * step / max(1, last)

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])

    lines = [
        Line(name, points, " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in outline(points)))
        for name, points in curves.items()
    ]
    x_ticks = [(x(step), short_number(step, 6)) for step in round_ticks(0, last) if step <= last]
    return Chart(title, lines, x_ticks, [(y(tick), short_number(tick, 6)) for tick in y_ticks])


def round_ticks(low: float, high: float, about: int = 4) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten from `low` or just below to `high` or just above, at least two."""
    largest = max(abs(low), abs(high))
    span = max(high - low, 1e-6 * largest)  # values may be equal, or differ by rounding only
    if span < 1 / LARGEST:
        span = 1.0
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= span / about * (1 - 1e-9))
    first, last = math.floor(low / step), math.ceil(high / step)
    return [index * step for index in range(first, max(last, first + 1) + 1)]


def outline(points: Sequence[Point], most: int = POINTS) -> list[Point]:
    """The points of a curve that show: of each of many short stretches, the lowest and the highest."""
    length = math.ceil(len(points) / (most / 2))
    if length <= 2:
        return list(points)
    shown = []
    for start in range(0, len(points), length):
        stretch = points[start : start + length]
        shown += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return shown


def evenly(items: Sequence[Any], most: int) -> list[Any]:
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

    rows: dict[str, list[tuple[float | None, float]]]
    """Layer -> norm and shade of each column, from 0 (the smallest norm of all) to 1, on a logarithmic scale."""

    extremes: tuple[float, float]

    @property
    def columns(self) -> list[int]:
        """Some of the columns, for the table."""
        return evenly(range(len(self.steps)), 6)


def _heat_map(records: Iterable[Mapping[str, Any]]) -> HeatMap | None:
    by_step = {
        record["step"]: record["gradient_norm_by_layer"]
        for record in records
        if isinstance(record.get("gradient_norm_by_layer"), dict)
    }
    steps = sorted(by_step)
    layers = dict.fromkeys(layer for step in steps for layer in by_step[step])
    length = math.ceil(len(steps) / COLUMNS)
    stretches = [steps[start : start + length] for start in range(0, len(steps), max(1, length))]

    def largest(layer: str, stretch: Sequence[int]) -> float | None:
        norms = [by_step[step].get(layer) for step in stretch]
        return max((norm for norm in norms if _is_finite(norm) and norm > 0), default=None)

    norms = {layer: [largest(layer, stretch) for stretch in stretches] for layer in layers}
    known = [norm for row in norms.values() for norm in row if norm is not None]
    if len(stretches) < 2 or not known:
        return None
    low, high = min(known), max(known)
    scale = math.log(high) - math.log(low) or 1.0
    rows = {
        layer: [(norm, 0.0 if norm is None else (math.log(norm) - math.log(low)) / scale) for norm in row]
        for layer, row in norms.items()
    }
    return HeatMap([stretch[-1] for stretch in stretches], rows, (low, high))


# --- words ---


def short_number(value: float, digits: int = 4) -> str:
    """A number in few letters: 0.0312, 4.25, 9500, 12k, 1.5M, 2.13e+15."""
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1e3:.{digits}g}k"
    if 1e6 <= abs(value) < 1e9:
        return f"{value / 1e6:.{digits}g}M"
    return f"{value:.{digits}g}"


def duration(seconds: float) -> str:
    """Hours, minutes, seconds, the two largest: `2 h 5 min`, `3 min 20 s`, `12 s`."""
    total = round(seconds)
    hours, minutes = total // 3600, total % 3600 // 60
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {total % 60} s" if minutes else f"{total} s"
