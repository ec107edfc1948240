import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.console.input_error import InputError
from paperformer.training.data.batches.token_budget import Batch, pad
from paperformer.training.engine.memory import dry_run as memory
from paperformer.training.engine.memory.dry_run import dry_run, find_fewest_parts
from paperformer.training.engine.optimizers import build_optimizers, optimizer_state_bytes
from paperformer.training.recipe.optimization import Optimization

CPU = torch.device("cpu")
MB = 10**6
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2} | IDS
LAYERS = {"encoder_layers": 1, "decoder_layers": 1, "decoder_start_token_id": 1}


def pairs_batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    return {
        "input_ids": pad(sources, 0),
        "attention_mask": pad([[1] * len(source) for source in sources], 0),
        "labels": pad(targets, -100),
    }


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "adafactor", "muon", "schedule_free"])
@pytest.mark.parametrize("family", ["seq2seq", "lm"])
def test_the_state_of_an_optimizer_is_known_before_its_first_step(family: str, optimizer: str) -> None:
    model: Any = PaperformerForCausalLM(PaperformerLMConfig(**SIZES, num_hidden_layers=2))
    if family == "seq2seq":
        model = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**SIZES, **LAYERS))
    optimizers = build_optimizers(model, Optimization(optimizer=optimizer, schedule="constant"))
    predicted = optimizer_state_bytes(optimizers)
    assert predicted > 0
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    for each in optimizers:
        each.step()
    states = [state for each in optimizers for state in each.state.values()]
    assert predicted == sum(
        tensor.nbytes
        for state in states
        for name, tensor in state.items()
        if isinstance(tensor, torch.Tensor) and name != "step"  # of 4 bytes
    )


class Machine:
    """Memory that behaves as it is told."""

    def __init__(self, free: float, bytes_of: Callable[[list[Batch]], float], taken: int = 100 * MB):
        self.room, self.bytes_of, self.in_use = free, bytes_of, taken
        self.steps: list[list[int]] = []

    def step(self, parts: list[Batch]) -> None:
        self.steps.append([len(part["labels"]) for part in parts])
        self.last = self.bytes_of(parts)

    def taken(self) -> int:
        return self.in_use

    def free(self) -> float:
        return self.room

    def peak(self, run: Callable[[], None]) -> float:
        run()
        return self.in_use + self.last


def run_dry(
    monkeypatch: pytest.MonkeyPatch,
    machine: Machine,
    rows: int = 64,
    later: int = 0,
    on_gpu: bool = False,
    **options: Any,
) -> int:
    kind = "DeviceMemory" if on_gpu else "ResidentMemory"
    monkeypatch.setattr(memory, kind, lambda *device: machine)
    batch = pairs_batch([[5] * 10] * rows, [[5] * 12] * rows)
    return dry_run(machine.step, batch, Optimization(**options), torch.device("cuda" if on_gpu else "cpu"), later)


def linear(parts: list[Batch]) -> float:
    """50 MB, and 10 MB for each row of the largest part; 7 MB of gradients where there are some already."""
    return 50 * MB + 10 * MB * max(len(part["labels"]) for part in parts) + 7 * MB * (len(parts) > 1)


@pytest.mark.parametrize(("free", "parts"), [(10_000, 1), (690, 2), (400, 3), (110, 16), (75, 64)])
def test_auto_finds_the_fewest_parts_and_has_tried_them(monkeypatch: pytest.MonkeyPatch, free: int, parts: int) -> None:
    machine = Machine(free * MB, linear)
    assert run_dry(monkeypatch, machine, split_batches="auto") == parts
    rows = math.ceil(64 / parts)
    assert rows in map(max, machine.steps)
    assert linear([{"labels": torch.ones(rows, 1)}] * min(2, parts)) <= 0.9 * free * MB
    if parts > 1:
        assert linear([{"labels": torch.ones(math.ceil(64 / (parts - 1)), 1)}] * 2) > 0.9 * free * MB
    assert len(machine.steps) <= 8


@pytest.mark.parametrize(
    ("options", "needed"),
    [  # megabytes: 100 before, 50 + 10 a row
        ({}, 790),
        ({"later": 30 * MB}, 820),
        ({"accumulation_steps": 2}, 797),  # with the gradients of the batch before
        ({"split_batches": 2}, 477),  # with those of the part before
        ({"split_batches": 2, "accumulation_steps": 4, "later": 30 * MB}, 507),
    ],
)
def test_the_optimizer_and_the_gradients_that_are_there_count(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], needed: int
) -> None:
    def fits(budget: int) -> int:
        return run_dry(monkeypatch, Machine(0, linear), on_gpu=True, memory_budget=budget / 1000, **options)

    assert fits(needed) == options.get("split_batches", 1)
    with pytest.raises(InputError, match=rf" takes {needed / 1000:.3g} GB"):
        fits(needed - 1)


def test_memory_that_grows_faster_than_expected_is_not_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    def bent(parts: list[Batch]) -> float:
        return max(200 * MB, 20 * MB * max(len(part["labels"]) for part in parts))

    machine = Machine(700 * MB, bent)
    assert run_dry(monkeypatch, machine, rows=1024, split_batches="auto") == math.ceil(1024 / 31)
    assert max(map(max, machine.steps)) <= 2 * 31


def test_a_gpu_may_run_out_of_memory_while_it_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def bounded(parts: list[Batch]) -> float:
        return 30 * MB if len(parts[0]["labels"]) <= 30 else math.inf

    parts = run_dry(monkeypatch, Machine(10_000 * MB, bounded), on_gpu=True, split_batches="auto")
    assert parts == 3  # of 22 rows, half the way from 16, which fit, to 32, which do not
    with pytest.raises(InputError, match=r"64 x 12 tokens in 2 parts, takes more with weights"):
        run_dry(monkeypatch, Machine(10_000 * MB, bounded), on_gpu=True, split_batches=2)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_given_number_of_parts_fits_or_is_refused(monkeypatch: pytest.MonkeyPatch, on_gpu: bool) -> None:
    machine = Machine(700 * MB, linear)
    assert run_dry(monkeypatch, machine, on_gpu=on_gpu) == 1
    assert machine.steps[-1] == [64]
    assert (len(machine.steps) == 1) == on_gpu  # a processor gets there by degrees
    assert run_dry(monkeypatch, Machine(400 * MB, linear), on_gpu=on_gpu, split_batches=2) == 2
    assert (
        run_dry(monkeypatch, Machine(700 * MB, linear), on_gpu=on_gpu, split_batches=1000) == 1000
    )  # of batches of more rows

    machine = Machine(10_000 * MB, linear)
    message = (
        r"^the longest batch, 64 x 12 tokens, takes 0\.79\d? GB with weights, gradients and optimizer state, and 0\.5 "
        r"GB optimization\.memory_budget allows; set optimization\.split_batches auto, fewer "
        r"optimization\.tokens_per_batch, or optimization\.gradient_checkpointing true$"
    )
    with pytest.raises(InputError, match=message):
        run_dry(monkeypatch, machine, on_gpu=on_gpu, memory_budget=0.5)
    assert run_dry(monkeypatch, machine, on_gpu=on_gpu, memory_budget=0.8) == 1
    if not on_gpu:
        machine = Machine(500 * MB, linear)
        with pytest.raises(InputError, match=r"takes 0\.797 GB .* and 0\.6 GB are free"):
            run_dry(monkeypatch, machine)
        assert max(map(max, machine.steps)) < 64  # which would have ended the process


def test_a_row_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    message = r"64 x 12 tokens in 64 parts, takes 0\.167 GB .* allows; set fewer optimization\.tokens_per_batch"
    with pytest.raises(InputError, match=message):
        run_dry(monkeypatch, Machine(10_000 * MB, linear), split_batches="auto", memory_budget=0.15)


@given(st.integers(1, 200), st.integers(1, 200), st.floats(0, 50), st.floats(0.01, 10), st.floats(1, 3000))
def test_what_is_found_fits_and_has_no_smaller_neighbour_that_does(
    rows: int, fewest: int, fixed: float, per_row: float, budget: float
) -> None:
    fewest = min(fewest, rows)

    def takes(parts: int) -> float:
        return fixed + per_row * math.ceil(rows / parts)

    found = find_fewest_parts(takes, rows, fewest, 0.0, budget)
    assert found.takes == takes(found.number)
    assert fewest <= found.number <= rows
    if found.takes > budget:
        assert found.number == rows
    elif found.number > fewest:
        assert takes(found.number - 1) > budget * (1 - 1e-9)


@pytest.mark.parametrize("family", ["lm", "seq2seq"])
def test_the_memory_of_a_batch_is_foreseen(family: str, measured: Callable[..., Any]) -> None:
    before, quarters, halves, whole = measured("foreseen", family)
    foreseen = halves + (halves - quarters) / (32 - 16) * (64 - 32)
    assert whole - before > 80 * MB
    assert foreseen == pytest.approx(whole, rel=0.15)
    # Of the batch alone the figure is rather too large: between two parts the C library's memory gets more holes.
    assert 0.85 < (foreseen - before) / (whole - before) < 1.6


def test_a_budget_is_kept_by_a_real_model(measured: Callable[..., Any]) -> None:
    parts, share = measured("budget")
    assert 2 <= parts <= 8
    assert 0.2 < share < 0.6


def test_few_passes_tell_that_there_is_plenty_of_memory() -> None:
    tried: list[int] = []

    def takes(parts: int) -> float:
        tried.append(parts)
        return 100.0 + -(-1000 // parts)

    assert find_fewest_parts(takes, 1000, 1, 100.0, 10_000.0).number == 1
    assert [-(-1000 // parts) for parts in tried] == [1, 2, 4, 8, 1000]
    tried.clear()
    assert find_fewest_parts(takes, 1000, 1, 100.0, 1200.0).number == 1
    assert len(tried) > 8  # where it is close, in small steps
