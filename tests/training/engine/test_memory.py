import gc
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.allocator import keep_large_buffers
from paperformer.training.data.batching import Batch, pad
from paperformer.training.data.masked_language_modeling import collate_masked
from paperformer.training.data.packing import collate_blocks
from paperformer.training.engine import memory
from paperformer.training.engine.memory import (
    DeviceMemory,
    ResidentMemory,
    control_group_room,
    dry_run,
    fewest_parts,
    optimizer_state_bytes,
    split_batch,
)
from paperformer.training.engine.optimizers import build_optimizers
from paperformer.training.input_error import InputError
from paperformer.training.options.optimization import Optimization

CPU = torch.device("cpu")
MB = 10**6
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "dropout": 0.0} | IDS
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 1}

torch.manual_seed(0)
TRANSLATOR = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**SIZES, **LAYERS)).double().train()
LM = PaperformerForCausalLM(PaperformerLMConfig(**SIZES, num_hidden_layers=2)).double().train()
LM.config.use_cache = False  # or documents are not kept apart

Sentences = st.lists(st.lists(st.integers(3, 29), min_size=1, max_size=6), min_size=1, max_size=5)


def pairs_batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    return {
        "input_ids": pad(sources, 0),
        "attention_mask": pad([[1] * len(source) for source in sources], 0),
        "labels": pad(targets, -100),
    }


def gradients(model: torch.nn.Module, batches: list[Batch], labels: int) -> tuple[float, list[torch.Tensor]]:
    """The sum of the losses, and what it gives the parameters."""
    model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = model(**batch, num_items_in_batch=torch.tensor(labels)).loss
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad for p in model.parameters()]


def assert_same_update(model: torch.nn.Module, batch: Batch, groups: list[Batch]) -> None:
    for actual, expected in zip(gradients(model, groups, 7), gradients(model, [batch], 7), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


@settings(deadline=None, max_examples=30)
@given(Sentences, Sentences, st.integers(1, 7))
def test_parts_of_pairs_add_up_to_the_whole(sources: list[list[int]], targets: list[list[int]], parts: int) -> None:
    rows = min(len(sources), len(targets))
    sources, targets = sources[:rows], targets[:rows]
    groups = split_batch(pairs_batch(sources, targets), parts)
    sizes = [len(group["labels"]) for group in groups]
    assert len(groups) == min(parts, rows)
    assert max(sizes) - min(sizes) <= 1
    first = 0
    for size, group in zip(sizes, groups, strict=True):  # which is what these rows would be as a batch of their own
        expected = pairs_batch(sources[first : first + size], targets[first : first + size])
        assert {name: tensor.tolist() for name, tensor in group.items()} == {
            name: tensor.tolist() for name, tensor in expected.items()
        }
        first += size
    assert_same_update(TRANSLATOR, pairs_batch(sources, targets), groups)


@settings(deadline=None, max_examples=30)
@given(st.data(), st.integers(1, 7), st.booleans())
def test_parts_of_running_text_add_up_to_the_whole(data: st.DataObject, parts: int, separate: bool) -> None:
    tokens = np.array(data.draw(st.lists(st.integers(3, 29), min_size=2, max_size=20)))
    places = st.lists(st.integers(0, len(tokens)), min_size=2, max_size=2, unique=True).map(sorted)
    blocks = np.array(data.draw(st.lists(places, min_size=1, max_size=5)))
    starts = np.array(sorted(data.draw(st.sets(st.integers(0, len(tokens) - 1)))), dtype=np.int64)
    batch = collate_blocks(tokens, blocks, 0, starts if separate else None)
    groups = split_batch(batch, parts)
    assert [row for group in groups for row in group["input_ids"].tolist()] != []
    for group in groups:
        assert len({tensor.shape for tensor in group.values()}) == 1
        is_used = (group["labels"] != -100).any(dim=0)
        assert is_used[-1] or len(is_used) == 1
    assert_same_update(LM, batch, groups)


@pytest.mark.parametrize("family", ["lm", "seq2seq"])
def test_missing_parts_can_be_made_up_for(family: str) -> None:
    model, batch = TRANSLATOR, pairs_batch([[5, 6], [7]], [[8], [9, 5]])
    if family == "lm":
        model, batch = LM, collate_blocks(np.array([5, 6, 7, 8]), np.array([[0, 3], [1, 4]]), 0, np.array([0, 2]))
    groups = split_batch(batch, 5, fill_up=True)
    assert [len(group["labels"]) for group in groups] == [1] * 5
    assert [int((group["labels"] != -100).sum()) > 0 for group in groups] == [True] * 2 + [False] * 3
    assert_same_update(model, batch, groups)
    assert len(split_batch(batch, 2, fill_up=True)) == 2


def test_a_masked_text_keeps_its_input_where_nothing_is_to_be_predicted() -> None:
    batch = collate_masked([[5, 6, 7, 8], [5, 6]], np.arange(30) > 2, 3, 0, np.random.default_rng(0), probability=0.01)
    short = split_batch(batch, 2)[1]
    assert short["input_ids"].shape == short["attention_mask"].shape == (1, 2)
    assert [split_batch(batch, 2)[0][name].shape[1] for name in ("input_ids", "attention_mask")] == [4, 4]


def test_what_a_decoder_reads_is_cut_with_the_labels() -> None:
    batch = pairs_batch([[5], [5, 6, 7]], [[5, 6, 7], [5]])
    batch["decoder_input_ids"] = torch.ones_like(batch["labels"])
    widths = [(part["input_ids"].shape[1], part["decoder_input_ids"].shape[1]) for part in split_batch(batch, 2)]
    assert widths == [(1, 3), (3, 1)]


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "adafactor", "muon"])
@pytest.mark.parametrize("model", [TRANSLATOR, LM], ids=["seq2seq", "lm"])
def test_the_state_of_an_optimizer_is_known_before_its_first_step(model: torch.nn.Module, optimizer: str) -> None:
    model = type(model)(model.config)
    optimizers = build_optimizers(model, Optimization(optimizer=optimizer))
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
        if name != "step"  # of 4 bytes
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

    found = fewest_parts(takes, rows, fewest, 0.0, budget)
    assert found.takes == takes(found.number)
    assert fewest <= found.number <= rows
    if found.takes > budget:
        assert found.number == rows
    elif found.number > fewest:
        assert takes(found.number - 1) > budget * (1 - 1e-9)


def medium(family: str) -> tuple[torch.nn.Module, Batch]:
    """A model and a batch of 64 rows whose memory is some hundred megabytes."""
    keep_large_buffers()
    sizes = IDS | {"vocab_size": 8_000, "hidden_size": 128, "intermediate_size": 256, "num_attention_heads": 4}
    ids = torch.randint(3, 8_000, (64, 64))
    if family == "lm":
        model: Any = PaperformerForCausalLM(PaperformerLMConfig(**sizes, num_hidden_layers=2))
        return model.train(), {"input_ids": ids, "labels": ids}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "decoder_start_token_id": 1}
    model = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**sizes, **layers))
    return model.train(), {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids}


FORESEE = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("tests_of_memory", sys.argv[1])
tests = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tests)
print(json.dumps(tests.measured_peaks(sys.argv[2])))
"""


def measured_peaks(family: str) -> list[float]:
    """Resident bytes before a batch, and at the peak of its quarters, of its halves and of itself."""
    model, batch = medium(family)
    resident = ResidentMemory()

    def step(parts: list[Batch]) -> None:
        for part in parts:
            model(**part).loss.backward()
        model.zero_grad(set_to_none=True)

    step(split_batch(batch, 64)[:2])  # what is set up once
    before = resident.taken()
    return [before, *(resident.peak(lambda n=n: step(split_batch(batch, n)[:2])) for n in (4, 2, 1))]


@pytest.mark.parametrize("family", ["lm", "seq2seq"])
def test_the_memory_of_a_batch_is_foreseen(family: str) -> None:
    """In a process of its own: what other tests have left in the heap moves the figures."""
    command = [sys.executable, "-c", FORESEE, __file__, family]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    before, quarters, halves, whole = json.loads(ended.stdout.splitlines()[-1])
    foreseen = halves + (halves - quarters) / (32 - 16) * (64 - 32)
    assert whole - before > 80 * MB
    assert foreseen == pytest.approx(whole, rel=0.15)
    # Of the batch alone the figure is rather too large: between two parts the C library's memory gets more holes.
    assert 0.85 < (foreseen - before) / (whole - before) < 1.6


def test_a_budget_is_kept_by_a_real_model() -> None:
    model, batch = medium("lm")
    resident = ResidentMemory()

    def step(parts: list[Batch]) -> None:
        for part in parts:
            model(**part).loss.backward()
        model.zero_grad(set_to_none=True)

    step(split_batch(batch, 64)[:2])
    before = resident.taken()
    whole = resident.peak(lambda: step([batch])) - before
    options = Optimization(split_batches="auto", memory_budget=(before + 0.5 * whole) / 1e9)
    parts = dry_run(step, batch, options, CPU, later_bytes=0)
    assert 2 <= parts <= 8
    taken = resident.peak(lambda: step(split_batch(batch, parts))) - before
    assert 0.2 * whole < taken < 0.6 * whole


@pytest.mark.parametrize("is_sampled", [False, True])
def test_the_peak_of_the_process_is_seen_whatever_it_has_freed_before(
    monkeypatch: pytest.MonkeyPatch, is_sampled: bool
) -> None:
    if is_sampled:
        real = Path.write_text
        refuse = {"/proc/self/clear_refs"}

        def write_text(path: Path, *args: Any, **kwargs: Any) -> int:
            if str(path) in refuse:
                raise PermissionError
            return real(path, *args, **kwargs)

        monkeypatch.setattr(Path, "write_text", write_text)
    kept = [torch.ones(10_000) for _ in range(5000)]  # 200 MB in pieces, which glibc keeps when they are freed
    del kept
    gc.collect()
    resident = ResidentMemory()
    before = resident.taken()

    def run() -> None:
        pieces = [torch.ones(10_000) for _ in range(2500)]
        torch.ones(10_000_000)  # 40 MB that are soon gone
        del pieces

    run()
    assert resident.peak(run) - before == pytest.approx(140 * MB, rel=0.1)
    assert resident.taken() - before < 14 * MB


def test_a_control_group_limits_what_is_free(tmp_path: Path) -> None:
    assert control_group_room(tmp_path) == math.inf

    def write(path: str, text: object) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    write("proc/self/cgroup", "0::/jobs/mine")
    write("sys/fs/cgroup/jobs/mine/memory.max", "max")
    write("sys/fs/cgroup/jobs/memory.max", 1000)
    write("sys/fs/cgroup/jobs/memory.current", 700)
    write("sys/fs/cgroup/jobs/memory.stat", "anon 500\ninactive_file 150")
    assert control_group_room(tmp_path) == 450
    write("proc/self/cgroup", "5:cpu,memory:/docker/4f2a\n3:pids:/x")  # whose own folder is the top one inside of it
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", 2000)
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", 900)
    write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100")
    assert control_group_room(tmp_path) == 1200


def test_processes_on_one_machine_share_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = ResidentMemory().free()
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert ResidentMemory().free() == pytest.approx(alone / 4, rel=0.1)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_counts_what_torch_allocates_and_survives_running_out() -> None:
    device = DeviceMemory(torch.device("cuda", 0))
    before = device.taken()
    assert device.peak(lambda: torch.empty(100 * MB, device="cuda").zero_()) - before == pytest.approx(
        400 * MB, rel=0.01
    )
    assert device.peak(lambda: torch.empty(10**13, device="cuda")) == math.inf
    assert device.taken() == before
    assert device.free() > 0


def test_few_passes_tell_that_there_is_plenty_of_memory() -> None:
    tried: list[int] = []

    def takes(parts: int) -> float:
        tried.append(parts)
        return 100.0 + -(-1000 // parts)

    assert fewest_parts(takes, 1000, 1, 100.0, 10_000.0).number == 1
    assert [-(-1000 // parts) for parts in tried] == [1, 2, 4, 8, 1000]
    tried.clear()
    assert fewest_parts(takes, 1000, 1, 100.0, 1200.0).number == 1
    assert len(tried) > 8  # where it is close, in small steps
