"""Curves of runs: which there are, how they are thinned and drawn, and what of them is in a page as data."""

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.reporting.curves import (
    FEWEST,
    POINTS,
    POINTS_AS_DATA,
    POINTS_OF_A_PAGE,
    choose_ticks,
    collect_charts,
    describe_charts,
    pick_evenly,
    read_clock,
    shorten_number,
    show_chart,
    thin_curve,
)

HOSTILE = "</script><script>alert(1)</script>&amp;"


def records(*losses: float) -> list[dict[str, Any]]:
    return [
        {"step": 20 * place, "loss": loss, "tokens_per_second": 100.0, "seconds": 60.0 * place}
        for place, loss in enumerate(losses, start=1)
    ] + [{"step": 20 * len(losses), "validation": {"loss": 1.5, "bleu": 9.0}}]


def test_each_run_has_a_colour() -> None:
    loss, *_ = collect_charts({"one": records(2.0, 1.0), "two": records(3.0, 2.0)})
    assert [(curve.name, curve.run, curve.looks) for curve in loss.curves] == [
        ("one, training", 0, "pf-c0 pf-d0"),
        ("one, validation", 0, "pf-c0 pf-d1"),
        ("two, training", 1, "pf-c1 pf-d0"),
        ("two, validation", 1, "pf-c1 pf-d1"),
    ]
    loss, *_ = collect_charts({"one": records(2.0, 1.0)})
    assert [curve.looks for curve in loss.curves] == ["pf-c0 pf-d0", "pf-c1 pf-d1"]


def test_many_runs_have_losses_apart_and_dashes_of_their_own() -> None:
    runs = {f"run-{number}": records(2.0, 1.0) for number in range(24)}
    charts = collect_charts(runs, is_overview=True)
    assert charts[0].title == "Training loss, nats a token"  # of validation losses there is one a run
    assert len({curve.looks for curve in charts[0].curves}) == 24


def test_a_chart_takes_two_values() -> None:
    assert collect_charts({"one": records(2.0)}) == []


def test_time_and_tokens_add_up_over_a_roll_back() -> None:
    first = records(2.0, 1.0, 9.0)[:3]
    again = [line | {"step": 40, "seconds": 240.0} for line in first[1:2]]
    assert read_clock(first + again) == [(20, 60.0, 6000.0), (40, 240.0, 24000.0)]


def test_data_of_a_page_end_no_script_and_say_the_same() -> None:
    runs = {HOSTILE: records(2.0, 1.0), "two": records(math.pi, 1e-7)}
    text = describe_charts(collect_charts(runs), runs)
    assert "<" not in text
    assert "&" not in text
    data = json.loads(text)
    assert [run["name"] for run in data["runs"]] == [HOSTILE, "two"]
    assert data["runs"][0] | {"name": ""} == {"name": "", "steps": [20, 40], "minutes": [1, 2], "tokens": [6000, 12000]}
    curve = data["charts"][0]["curves"][2]
    assert (curve["name"], curve["run"], curve["x"], curve["y"]) == ("two, training", 1, [20, 40], [3.14159, 1e-07])
    assert "all" not in curve


def test_names_of_a_drawing_are_escaped() -> None:
    (chart, *_) = collect_charts({HOSTILE: records(2.0, 1.0), "two": records(2.0, 1.0)})
    assert "<script" not in show_chart(chart)
    assert "&lt;script" in show_chart(chart)


def test_a_long_curve_is_thinned_to_what_a_page_can_have() -> None:
    losses = [5 + math.sin(step / 700) for step in range(50_000)]
    losses[777], losses[49_000] = 99.0, -9.0
    long = {"long": [{"step": step, "loss": loss} for step, loss in enumerate(losses)]}
    (chart,) = collect_charts(long)
    text = describe_charts([chart], long)
    (curve,) = json.loads(text)["charts"][0]["curves"]
    assert len(curve["x"]) <= POINTS_AS_DATA
    assert curve["all"] == 50_000
    assert {(777, 99.0), (49_000, -9.0), (0, 5.0)} <= set(zip(curve["x"], curve["y"], strict=True))
    assert curve["x"][-1] == 49_999
    assert np.mean(curve["means"]["y"]) == pytest.approx(np.mean(losses), abs=1e-3)
    assert len(text) < 100_000


def test_many_curves_share_the_points_of_a_page() -> None:
    line = [{"step": step, "loss": 1.0 + step % 7} for step in range(2000)]
    runs = {f"run-{number}": line for number in range(80)}
    charts = collect_charts(runs, is_overview=True)
    curves = json.loads(describe_charts(charts, runs))["charts"][0]["curves"]
    assert all(FEWEST <= len(curve["x"]) <= POINTS_OF_A_PAGE / 80 for curve in curves)


numbers = st.floats(-1e99, 1e99) | st.floats(-10, 10) | st.integers(-5, 5).map(float)


@given(st.tuples(numbers, numbers).map(sorted))
def test_ticks_are_round_and_reach_around_the_values(values: list[float]) -> None:
    low, high = values
    ticks = choose_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    steps = [after - before for before, after in pairwise(ticks)]
    assert min(steps) > 0
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-6)
    slack = 1e-9 * steps[0]
    assert ticks[0] - slack <= low
    assert high <= ticks[-1] + slack
    assert float(f"{steps[0]:.5e}"[0]) in (1, 2, 5, 9)  # 9 of 0.0999...


def test_ticks_of_ordinary_ranges() -> None:
    assert choose_ticks(1.6, 8.4) == [0, 2, 4, 6, 8, 10]
    assert choose_ticks(0, 8000) == [0, 2000, 4000, 6000, 8000]
    assert choose_ticks(3, 3)[0] <= 3 < choose_ticks(3, 3)[-1]


@given(st.integers(1, 10 * POINTS), st.integers(0, 2**32))
def test_thinning_keeps_the_extremes(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=count).tolist()
    points = list(enumerate(values))
    shown = thin_curve(points)
    assert len(shown) <= POINTS
    assert set(shown) <= set(points)
    assert shown == sorted(shown)
    assert min(v for _, v in shown) == min(values)
    assert max(v for _, v in shown) == max(values)


@given(st.integers(0, 200), st.integers(2, 30))
def test_tables_reach_from_the_first_to_the_last(count: int, most: int) -> None:
    items = list(range(count))
    shown = pick_evenly(items, most)
    assert len(shown) == min(count, most)
    assert shown == sorted(set(shown))
    assert [*shown[:1], *shown[-1:]] == [*items[:1], *items[-1:]]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.0312, "0.0312"), (9500, "9500"), (12_000, "12k"), (1.5e6, "1.5M"), (2.13e15, "2.13e+15")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert shorten_number(value) == text
    assert shorten_number(-value).lstrip("-") == text


def test_a_thinned_curve_begins_and_ends_where_it_does() -> None:
    points = [(step, float(step == 500)) for step in range(2000)]
    shown = thin_curve(points, 20)
    assert (shown[0], shown[-1]) == (points[0], points[-1])
    assert (500, 1.0) in shown
