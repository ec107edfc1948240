import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, get_args, get_type_hints

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from paperformer.training.engine.schedules import learning_rate
from paperformer.training.recipe.optimization import Optimization

SCHEDULES = get_args(get_type_hints(Optimization)["schedule"])
PEAK = 3e-4
DECAYING = ["cosine", "linear", "wsd"]


def rates(**options: Any) -> list[float]:
    """The learning rate of every step."""
    optimization = Optimization(**{"learning_rate": PEAK, "max_steps": 100, "warmup_steps": 10} | options)
    return [learning_rate(optimization, step, 512) for step in range(1, optimization.max_steps + 1)]


def shifted(schedule: Callable[..., torch.optim.lr_scheduler.LambdaLR], steps: int, **arguments: Any) -> list[float]:
    """The learning rates of a schedule of transformers, which counts steps from 0."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=PEAK)
    (factor,) = schedule(optimizer, **arguments).lr_lambdas
    return [PEAK * factor(step) for step in range(1, steps + 1)]


@pytest.mark.parametrize("warmup", [1, 7, 4000])
@pytest.mark.parametrize("hidden_size", [512, 1024])
def test_the_rate_of_the_paper_is_its_equation_3(warmup: int, hidden_size: int) -> None:
    options = Optimization(learning_rate="paper", warmup_steps=warmup, max_steps=100_000)
    for step in (1, 2, 6, 7, 8, 3999, 4000, 4001, 100_000):
        expected = hidden_size**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert learning_rate(options, step, hidden_size) == pytest.approx(expected, rel=1e-13)


def test_the_peak_of_transformer_base_is_7_e_4_at_step_4000() -> None:
    options = Optimization(learning_rate="paper", warmup_steps=4000, max_steps=100_000)
    assert learning_rate(options, 4000, 512) == pytest.approx(6.99e-4, abs=5e-7)
    assert max(range(1, 100_001), key=lambda step: learning_rate(options, step, 512)) == 4000


def test_inverse_sqrt_is_equation_3_with_another_peak() -> None:
    paper = [min(step**-0.5, step * 10**-1.5) for step in range(1, 101)]
    expected = [PEAK * rate / max(paper) for rate in paper]
    assert rates(schedule="inverse_sqrt") == pytest.approx(expected, rel=1e-13)


def test_without_a_warm_up_inverse_sqrt_begins_at_the_peak() -> None:
    expected = [PEAK * step**-0.5 for step in range(1, 101)]
    assert rates(schedule="inverse_sqrt", warmup_steps=0) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("schedule", "reference", "arguments"),
    [
        ("constant", "get_constant_schedule_with_warmup", {}),
        ("inverse_sqrt", "get_inverse_sqrt_schedule", {}),
        ("cosine", "get_cosine_schedule_with_warmup", {"num_training_steps": 100}),
        ("linear", "get_linear_schedule_with_warmup", {"num_training_steps": 100}),
        ("wsd", "get_wsd_schedule", {"num_training_steps": 100, "num_decay_steps": 20, "decay_type": "1-sqrt"}),
    ],
)
def test_schedules_are_those_of_transformers_a_step_later(
    schedule: str, reference: str, arguments: dict[str, Any]
) -> None:
    expected = shifted(getattr(transformers.optimization, reference), 100, num_warmup_steps=10, **arguments)
    assert rates(schedule=schedule) == pytest.approx(expected, rel=1e-12, abs=1e-18)


@pytest.mark.parametrize(
    ("schedule", "reference", "arguments"),
    [
        ("cosine", "get_cosine_with_min_lr_schedule_with_warmup", {"min_lr_rate": 0.1}),
        ("wsd", "get_wsd_schedule", {"min_lr_ratio": 0.1, "num_decay_steps": 35, "decay_type": "1-sqrt"}),
    ],
)
def test_final_rates_are_those_of_transformers(schedule: str, reference: str, arguments: dict[str, Any]) -> None:
    arguments |= {"num_warmup_steps": 10, "num_training_steps": 100}
    expected = shifted(getattr(transformers.optimization, reference), 100, **arguments)
    decay_steps = arguments.get("num_decay_steps")
    actual = rates(schedule=schedule, final_learning_rate=0.1, decay_steps=decay_steps)
    assert actual[9:] == pytest.approx(expected[9:], rel=1e-12)  # its wsd warms up from the final rate, ours from 0


def test_cosine_and_linear_are_those_of_torch_after_the_warm_up() -> None:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=PEAK)
    schedule = torch.optim.lr_scheduler
    for name, reference in {
        "cosine": lambda: schedule.CosineAnnealingLR(optimizer, T_max=90, eta_min=0.25 * PEAK),
        "linear": lambda: schedule.LinearLR(optimizer, start_factor=1.0, end_factor=0.25, total_iters=90),
    }.items():
        optimizer.param_groups[0].update(lr=PEAK, initial_lr=PEAK)
        expected, scheduler = [], reference()
        for _ in range(91):
            expected.append(scheduler.get_last_lr()[0])
            optimizer.step()
            scheduler.step()
        assert rates(schedule=name, final_learning_rate=0.25)[9:] == pytest.approx(expected, rel=1e-9)


def test_wsd_decays_in_the_last_fifth_by_one_minus_the_root() -> None:
    actual = rates(schedule="wsd", final_learning_rate=0.1)
    assert actual[9:80] == [PEAK] * 71
    expected = [PEAK * (0.1 + 0.9 * (1 - math.sqrt(i / 20))) for i in range(1, 21)]
    assert actual[80:] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("decay_steps", [90, 95, 1000])
def test_wsd_decays_no_earlier_than_the_end_of_the_warm_up(decay_steps: int) -> None:
    actual = rates(schedule="wsd", decay_steps=decay_steps)
    assert actual[:10] == rates(schedule="constant")[:10]
    expected = [PEAK * (1 - math.sqrt(i / 90)) for i in range(1, 91)]
    assert actual[10:] == pytest.approx(expected, rel=1e-12, abs=1e-18)


@st.composite
def optimizations(draw: st.DrawFn, schedules: list[str]) -> Optimization:
    max_steps = draw(st.integers(1, 300))
    return Optimization(
        schedule=draw(st.sampled_from(schedules)),
        learning_rate=draw(st.one_of(st.floats(1e-8, 10), st.just("paper"))),
        max_steps=max_steps,
        warmup_steps=draw(st.integers(1, 2 * max_steps)),
        decay_steps=draw(st.none() | st.integers(1, 2 * max_steps)),
        final_learning_rate=draw(st.just(0.0) | st.floats(1e-6, 1)),
    )


def all_rates(options: Optimization) -> tuple[float, list[float]]:
    peak = (64 * options.warmup_steps) ** -0.5 if options.learning_rate == "paper" else options.learning_rate
    return peak, [learning_rate(options, step, 64) for step in range(1, options.max_steps + 1)]


@given(optimizations(SCHEDULES))
def test_rates_rise_in_equal_steps_to_the_peak_and_never_again(options: Optimization) -> None:
    peak, actual = all_rates(options)
    warmup = options.warmup_steps
    assert actual[:warmup] == pytest.approx([peak * step / warmup for step in range(1, len(actual[:warmup]) + 1)])
    assert all(0 <= rate <= peak * (1 + 1e-12) for rate in actual)
    after = actual[warmup - 1 :]
    assert all(later <= earlier * (1 + 1e-12) for earlier, later in pairwise(after))


@given(optimizations(DECAYING))
def test_a_decay_ends_at_the_last_step(options: Optimization) -> None:
    peak, actual = all_rates(options)
    if options.max_steps > options.warmup_steps:
        assert actual[-1] == pytest.approx(options.final_learning_rate * peak, abs=1e-12 * peak)
    if options.final_learning_rate > 0:
        assert min(actual) > 0


@given(optimizations(SCHEDULES))
def test_rates_do_not_jump(options: Optimization) -> None:
    peak, actual = all_rates(options)
    after = max(1, options.max_steps - options.warmup_steps)
    # The steepest places: the warm-up; the middle of a cosine; the first step of 1-sqrt, which is as its shape is.
    decay_steps = max(1, options.max_steps // 5) if options.decay_steps is None else options.decay_steps
    largest = max(
        1 / options.warmup_steps,
        {"cosine": math.pi / 2 / after, "linear": 1 / after, "wsd": min(decay_steps, after) ** -0.5}.get(
            options.schedule, 0.0
        ),
    )
    for earlier, later in pairwise(actual):
        assert abs(later - earlier) <= peak * largest * (1 + 1e-9)
