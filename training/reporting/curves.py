"""The curves of training runs: collected from their records, thinned, drawn as SVG, and given to a page as data.

A page shows the drawings as they are; where it may run scripts, `charts.js` puts others in their place that it draws
from the data, and which can be read off, magnified and smoothed. `charts.css` has the looks of both.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

POINTS = 300
"""At most so many points of a curve are drawn, and this is what a screen of that width can show."""

POINTS_OF_A_DRAWING = 6000
"""At most so many of all curves of a drawing, where there are many; each has `FEWEST` nevertheless."""

POINTS_AS_DATA = 2000
"""At most so many points of a curve are in the data of a page."""

POINTS_OF_A_PAGE = 100_000
"""At most so many of all its curves; each has `FEWEST` nevertheless."""

POINTS_OF_CLOCKS = 20_000
"""The same, of the times that the steps of all runs took."""

FEWEST = 20

COLOURS = 6
"""Of runs; the seventh has the first again, dashed, and so on."""

DASHES = 4

IN_WORDS = 6
"""Of a drawing, so many curves are said in words."""

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

Records = Sequence[Mapping[str, Any]]
"""Those of a run, each with its step (`keep_records`)."""


def keep_records(records: Any) -> list[dict[str, Any]]:
    """The records that have the form of all records: a mapping with a step."""
    return [record for record in records if isinstance(record, dict) and isinstance(record.get("step"), int)]


def collect_points(records: Iterable[Mapping[str, Any]], name: str, unit: float = 1.0) -> list[Point]:
    """A figure by step; of a step that was done again, after a roll-back, the last value. Only what can be drawn."""
    values = {record["step"]: record[name] for record in records if name in record}
    return sorted((step, value / unit) for step, value in values.items() if is_finite(value))


def is_finite(value: Any) -> bool:
    """Whether it is a number, neither NaN nor infinite."""
    return isinstance(value, int | float) and abs(value) < LARGEST


@dataclass(frozen=True)
class Curve:
    """A figure of a run, by step."""

    name: str
    run: int
    """Place of its run among those of the page."""

    points: list[Point]
    looks: str
    """Classes of `charts.css`: its colour, and how it is dashed."""

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
    """Curves that share their axes, at least one of them of two points."""

    title: str
    curves: list[Curve]
    low: float = math.inf
    """A value that the axis reaches down to at least."""


def collect_charts(runs: Mapping[str, Records], *, is_overview: bool = False) -> list[Chart]:
    """The charts of runs, of all figures that there are at least two values of.

    Args:
        runs: the records of each run by its name.
        is_overview: whether there may be many runs: losses in training and in validation then have a chart each, and
            each run has its own dashes.
    """
    validations = {name: _validations(records) for name, records in runs.items()}
    scores = dict.fromkeys(
        score for rows in validations.values() for row in rows for score in row if score not in ("step", "loss")
    )

    def gather(title: str, rows: Mapping[str, Records], figure: str, unit: float = 1.0, low: float = math.inf) -> Chart:
        looks = [f"pf-c{place % COLOURS} pf-d{place // COLOURS % DASHES}" for place in range(len(rows))]
        points = [collect_points(of_run, figure, unit) for of_run in rows.values()]
        names = list(rows) if len(rows) > 1 or is_overview else ["value" if low == 0 else figure]
        curves = [Curve(names[place], place, own, looks[place]) for place, own in enumerate(points) if own]
        return Chart(title, curves, low)

    title = "Loss, nats a token"
    training, validation = gather(title, runs, "loss"), gather(title, validations, "loss")
    if is_overview:
        charts = [
            Chart(f"{kind} loss, nats a token", own.curves)
            for kind, own in (("Validation", validation), ("Training", training))
        ]
    else:
        charts = [_join_losses(title, training, validation, len(runs))]
    charts += [gather(f"Validation {score}", validations, score) for score in scores]
    charts += [gather(title, runs, *figure, low=0.0) for title, figure in AMOUNTS.items()]
    return [chart for chart in charts if max((len(curve.points) for curve in chart.curves), default=0) > 1]


def _validations(records: Records) -> list[dict[str, Any]]:
    return [
        {**record["validation"], "step": record["step"]}
        for record in records
        if isinstance(record.get("validation"), dict)
    ]


def _join_losses(title: str, training: Chart, validation: Chart, runs: int) -> Chart:
    """Both losses of each run in one chart: of one run in two colours, of several each run in its own."""
    curves = [
        Curve(
            kind if runs == 1 else f"{curve.name}, {kind}",
            curve.run,
            curve.points,
            f"pf-c{place if runs == 1 else curve.run % COLOURS} {dashes}",
        )
        for place, (kind, chart, dashes) in enumerate(
            (("training", training, "pf-d0"), ("validation", validation, "pf-d1"))
        )
        for curve in chart.curves
    ]
    return Chart(title, sorted(curves, key=lambda curve: curve.run))


# --- drawings ---

WIDTH, HEIGHT = 360.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 340.0, 8.0, 196.0
"""The box of the axes, in the same units. `charts.js` has the same figures."""


def show_chart(chart: Chart, *, heading: str = "h3", has_keys: bool = True) -> str:
    """A chart as HTML: its title, what its lines stand for, and an SVG that says in words how they go.

    Args:
        heading: the element of its title.
        has_keys: whether it says which line is whose; else the page does so elsewhere.
    """
    shown = has_keys and len(chart.curves) > 1
    keys = "".join(
        f'<span><span class="pf-key {curve.looks}"></span>{escape(curve.name)}</span>' for curve in chart.curves
    )
    legend = f'<p class="pf-legend">{keys}</p>' if shown else ""
    return f"<figcaption><{heading}>{escape(chart.title)}</{heading}>{legend}</figcaption>{draw_chart(chart)}"


def draw_chart(chart: Chart) -> str:
    """The SVG of a chart."""
    values = [value for curve in chart.curves for _, value in curve.points]
    last = max(curve.points[-1][0] for curve in chart.curves)
    y_ticks = choose_ticks(*spread_values(min(chart.low, *values), max(values)))
    most = max(FEWEST, min(POINTS, POINTS_OF_A_DRAWING // len(chart.curves)))

    def x(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * step / max(1, last)

    def y(value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (value - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])

    words = [curve.in_words for curve in chart.curves[:IN_WORDS]]
    if (others := len(chart.curves) - IN_WORDS) > 0:
        words.append(f"and {others} more")
    parts = [
        f'<line class="pf-grid" x1="{LEFT}" x2="{RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{shorten_number(tick, 6)}</text>'
        for tick in y_ticks
    ]
    parts += [
        f'<text x="{x(tick):.1f}" y="{BOTTOM + 17}" text-anchor="middle">{shorten_number(tick, 6)}</text>'
        for tick in choose_ticks(0, last)
        if tick <= last
    ]
    for curve in chart.curves:
        points = " ".join(f"{x(step):.1f},{y(value):.1f}" for step, value in thin_curve(curve.points, most))
        parts.append(f'<polyline class="pf-line {curve.looks}" points="{points}"/>')
    label = escape(f"{chart.title} by step: {'; '.join(words)}")
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'


def spread_values(low: float, high: float) -> tuple[float, float]:
    """The same, but where they differ by rounding only, a tenth of their size apart, so that their labels differ."""
    margin = abs(high) / 20 if high - low <= 1e-5 * max(abs(low), abs(high)) else 0.0
    return low - margin, high + margin


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
    """The points of a curve that show: the first and the last, and of each of many short stretches the lowest and the
    highest, so that no peak is lost."""
    if len(points) <= most:
        return list(points)
    shown = {points[0], points[-1]}
    for stretch in _stretches(points, (most - 2) // 2):
        shown |= {min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])}
    return sorted(shown)


def _stretches(points: Sequence[Point], count: int) -> list[Sequence[Point]]:
    """The points in order, in at most so many parts of equal length."""
    length = math.ceil(len(points) / count)
    return [points[start : start + length] for start in range(0, len(points), length)]


# --- data ---


def describe_charts(charts: Sequence[Chart], runs: Mapping[str, Records]) -> str:
    """The charts and the clocks of their runs as JSON that may stand in a `<script>` of a page.

    Args:
        charts: of these runs.
        runs: as `collect_charts` takes them.
    """
    curves = sum(len(chart.curves) for chart in charts)
    most = max(FEWEST, min(POINTS_AS_DATA, POINTS_OF_A_PAGE // max(1, curves)))
    described = {
        "runs": [{"name": name} | _describe_clock(records, len(runs)) for name, records in runs.items()],
        "charts": [
            {
                "title": chart.title,
                "low": 0 if chart.low == 0 else None,
                "curves": [_describe_curve(curve, most) for curve in chart.curves],
            }
            for chart in charts
        ],
    }
    # In a <script>, nothing is a character reference and `</` would end it.
    text = json.dumps(described, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _describe_curve(curve: Curve, most: int) -> dict[str, Any]:
    """A curve; of one that is thinned also the means of its stretches, which are what is smoothed."""
    shown = thin_curve(curve.points, most)
    described: dict[str, Any] = {"name": curve.name, "run": curve.run, "looks": curve.looks, **_describe_points(shown)}
    if len(shown) < len(curve.points):
        means = [
            (stretch[len(stretch) // 2][0], math.fsum(value for _, value in stretch) / len(stretch))
            for stretch in _stretches(curve.points, most // 2)
        ]
        described |= {"all": len(curve.points), "means": _describe_points(means)}
    return described


def _describe_points(points: Sequence[Point]) -> dict[str, list[float]]:
    return {"x": [step for step, _ in points], "y": [float(f"{value:.6g}") for _, value in points]}


def _describe_clock(records: Records, runs: int) -> dict[str, list[float]]:
    """At which step how many minutes were trained, and on how many tokens."""
    clock = pick_evenly(read_clock(records), max(FEWEST, min(POINTS, POINTS_OF_CLOCKS // runs)))
    return {
        "steps": [step for step, _, _ in clock],
        "minutes": [round(seconds / 60, 4) for _, seconds, _ in clock],
        "tokens": [round(tokens) for _, _, tokens in clock],
    }


def read_clock(records: Records) -> list[tuple[int, float, float]]:
    """(step, seconds, tokens): how long a run had trained by its steps, and on how many target tokens.

    Tokens are speed by time, line by line. After a roll-back the steps that are done again count once more in both; of
    a step that was done twice, the last time holds.
    """
    clock: list[tuple[int, float, float]] = []
    tokens = seconds = 0.0
    for record in records:
        if is_finite(record.get("tokens_per_second")) and is_finite(record.get("seconds")):
            tokens += record["tokens_per_second"] * max(0.0, record["seconds"] - seconds)
            seconds = record["seconds"]
            while clock and clock[-1][0] >= record["step"]:
                clock.pop()
            clock.append((record["step"], seconds, tokens))
    return clock


# --- words ---


def pick_evenly(items: Sequence[Any], most: int) -> list[Any]:
    """At most so many of the items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(index * (len(items) - 1) / (most - 1))] for index in range(most)]


def shorten_number(value: float, digits: int = 4) -> str:
    """A number in few letters: 0.0312, 4.25, 9500, 12k, 1.5M, 2.13e+15."""
    if 1e4 <= abs(value) < 1e6:
        return f"{value / 1e3:.{digits}g}k"
    if 1e6 <= abs(value) < 1e9:
        return f"{value / 1e6:.{digits}g}M"
    return f"{value:.{digits}g}"
