"""Curves of training runs, each run a colour, as SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from ..training.reporting.report import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    WIDTH,
    Chart,
    Point,
    collect_points,
    draw_chart,
)

COLOURS = 6
"""Of runs; a further run has the colour of the first again."""

FIGURES = {
    "Gradient norm before clipping": "gradient_norm",
    "Learning rate": "learning_rate",
    "Speed, target tokens a second": "tokens_per_second",
}


def draw_charts(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[Chart, dict[str, str]]]:
    """The charts of runs, given the records of each by its name.

    Returns:
        Each with the class of each of its lines: the colour of its run, and validation dashed.
    """
    colours = {name: f"pf-c{place % COLOURS}" for place, name in enumerate(runs)}
    validations = {name: _validations(records) for name, records in runs.items()}
    scores = dict.fromkeys(
        score for rows in validations.values() for row in rows for score in row if score not in ("step", "loss")
    )
    loss: dict[str, list[Point]] = {}
    classes = {}
    for name, records in runs.items():
        for kind, rows, style in (("training", records, ""), ("validation", validations[name], " pf-second-line")):
            called = f"{name}, {kind}" if len(runs) > 1 else kind
            loss[called], classes[called] = collect_points(rows, "loss"), colours[name] + style
    drawn = [(draw_chart("Loss, nats a token", loss), classes)]
    for score in scores:
        curves = {name: collect_points(rows, score) for name, rows in validations.items()}
        drawn.append((draw_chart(f"Validation {score}", curves), colours))
    for title, figure in FIGURES.items():
        curves = {name: collect_points(records, figure) for name, records in runs.items()}
        drawn.append((draw_chart(title, curves, low=0.0), colours))
    return [(chart, classes) for chart, classes in drawn if chart is not None]


def _validations(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**record["validation"], "step": record["step"]}
        for record in records
        if isinstance(record.get("validation"), dict)
    ]


def show_charts(charts: Sequence[tuple[Chart, Mapping[str, str]]]) -> str:
    """The charts as HTML, each with what its lines say in words."""
    return f'<div class="pf-charts">{"".join(_show_chart(*each) for each in charts)}</div>'


def _show_chart(chart: Chart, classes: Mapping[str, str]) -> str:
    words = "; ".join(line.in_words for line in chart.lines)
    parts = [
        f'<line class="pf-grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{escape(label)}</text>'
        for y, label in chart.y_ticks
    ]
    parts += [
        f'<text x="{x:.1f}" y="{BOTTOM + 17}" text-anchor="middle">{escape(label)}</text>' for x, label in chart.x_ticks
    ]
    parts += [f'<polyline class="pf-line {classes[line.name]}" points="{line.path}"/>' for line in chart.lines]
    keys = "".join(
        f'<span><span class="pf-key {classes[line.name]}"></span>{escape(line.name)}</span>' for line in chart.lines
    )
    legend = f'<p class="pf-legend">{keys}</p>' if len(chart.lines) > 1 else ""
    return (
        f"<figure><figcaption><h4>{escape(chart.title)}</h4>{legend}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(f"{chart.title} by step: {words}")}">'
        f"{''.join(parts)}</svg></figure>"
    )
