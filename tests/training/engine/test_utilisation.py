import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig, PaperformerSeq2SeqConfig
from paperformer.modeling.linear_attention import CHUNK_SIZE
from paperformer.training.compute_budget import PEAK_TFLOPS
from paperformer.training.costs import Config, count_parameters, training_flops
from paperformer.training.data.batching import Batch
from paperformer.training.data.packing import collate_blocks
from paperformer.training.data.pair_batches import BatchOptions
from paperformer.training.engine import utilisation
from paperformer.training.engine.utilisation import EnergyMeter, StepFlops, peak_flops_of

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


# --- peak speed


@pytest.fixture
def gpu_named(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], torch.device]:
    """A GPU of this name; what is measured is 7."""

    def named(name: str) -> torch.device:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        return GPU

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(
        utilisation, "measure_flops", lambda precision: {"fp32": 7.0, "bf16": 14.0, "fp16": 15.0}[precision]
    )
    return named


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("A100-SXM4-40GB", "A100"),
        ("NVIDIA A100 80GB PCIe", "A100"),
        ("NVIDIA A100-PCIE-40GB", "A100"),
        ("Tesla V100-SXM2-32GB", "V100"),
        ("Tesla P100-SXM2-16GB", "P100"),
        ("Tesla T4", "T4"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA GeForce RTX 3090", "RTX3090"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
    ],
)
def test_peaks_from_data_sheets(name: str, model: str, gpu_named: Callable[[str], torch.device]) -> None:
    device = gpu_named(name)
    speeds = PEAK_TFLOPS[model]
    assert peak_flops_of(device, "no") == speeds["fp32"] * 1e12
    assert peak_flops_of(device, "fp16") == speeds["fp16"] * 1e12
    assert peak_flops_of(device, "bf16") == (speeds["bf16"] * 1e12 if "bf16" in speeds else 14)
    assert peak_flops_of(device, "tf32") == speeds.get("tf32", speeds["fp32"]) * 1e12


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA H100 PCIe",
        "NVIDIA H100 NVL",
        "NVIDIA H20",
        "NVIDIA GH200 480GB",
        "NVIDIA L40S",
        "Tesla V100-PCIE-16GB",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
        "AMD Instinct MI300X",
    ],
)
def test_devices_that_are_slower_than_their_namesakes_are_measured(
    name: str, gpu_named: Callable[[str], torch.device]
) -> None:
    device = gpu_named(name)
    assert [peak_flops_of(device, precision) for precision in ("no", "tf32", "bf16", "fp16")] == [7, 7, 14, 15]


def test_a_processor_is_measured_and_the_random_state_stays() -> None:
    before = torch.get_rng_state()
    assert peak_flops_of(CPU, "no") > 1e8
    assert torch.get_rng_state().equal(before)


# --- FLOPs of a step


def sequences(lengths: list[int]) -> list[list[int]]:
    return [[5] * length for length in lengths]


def pair_batch(sources: list[int], targets: list[int]) -> Batch:
    options = BatchOptions(max_length=999, truncate=False, tokens_per_batch=9, seed=1, pad_token_id=0)
    return options.tensors(sequences(sources), sequences(targets))


def text_batch(lengths: list[int], **more: Any) -> Batch:
    ends = np.cumsum(lengths)
    blocks = np.stack((ends - lengths, ends), axis=1)
    return collate_blocks(np.full(ends[-1], 5), blocks, pad_token_id=0, **more)


def seq2seq(**options: Any) -> PaperformerSeq2SeqConfig:
    return PaperformerSeq2SeqConfig(encoder_layers=3, decoder_layers=2, vocab_size=97, **options)


LENGTHS = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=6)


@given(LENGTHS)
def test_a_batch_of_pairs_costs_what_its_rows_cost_by_themselves(pairs: list[tuple[int, int]]) -> None:
    config = seq2seq(num_key_value_heads=2, gated_mlp=True)
    expected = sum(training_flops(config, target, source) for source, target in pairs)
    sources, targets = map(list, zip(*pairs, strict=True))
    assert StepFlops(config)(pair_batch(sources, targets)) == pytest.approx(expected, rel=1e-12)


@given(st.lists(st.integers(2, 90), min_size=1, max_size=6), st.booleans())
def test_a_batch_of_text_costs_what_its_rows_cost_by_themselves(lengths: list[int], is_masked: bool) -> None:
    family: type[Config] = PaperformerEncoderConfig if is_masked else PaperformerLMConfig
    config = family(num_hidden_layers=3, vocab_size=97, pad_token_id=0)
    batch = text_batch(lengths)
    if is_masked:
        batch["attention_mask"] = (batch["input_ids"] != 0).long()
        batch["labels"][:] = -100  # of most tokens
    expected = sum(training_flops(config, length) for length in lengths)
    assert StepFlops(config)(batch) == pytest.approx(expected, rel=1e-12)


def test_documents_in_one_row_count_as_one() -> None:
    config = PaperformerLMConfig(num_hidden_layers=1, vocab_size=97, pad_token_id=0)
    batch = text_batch([8, 5], document_starts=np.array([0, 3, 7, 12]))
    assert (batch["labels"][0] == -100).sum() > 1  # first tokens, which are no padding
    assert StepFlops(config)(batch) == pytest.approx(training_flops(config, 8) + training_flops(config, 5))


def test_a_vocabulary_without_padding() -> None:
    config = PaperformerLMConfig(num_hidden_layers=1, vocab_size=97, pad_token_id=None)
    batch = {"input_ids": torch.zeros(2, 8, dtype=torch.long), "labels": torch.zeros(2, 8, dtype=torch.long)}
    assert StepFlops(config)(batch) == 2 * training_flops(config, 8)


@given(LENGTHS, st.integers(1, 4))
def test_rows_add_up_and_padding_is_free(pairs: list[tuple[int, int]], repetitions: int) -> None:
    flops, (sources, targets) = StepFlops(seq2seq()), map(list, zip(*pairs, strict=True))
    once = flops(pair_batch(sources, targets))
    assert flops(pair_batch(sources * repetitions, targets * repetitions)) == pytest.approx(
        repetitions * once, rel=1e-12
    )
    longest = flops(pair_batch([80], [80]))
    assert flops(pair_batch([*sources, 80], [*targets, 80])) == pytest.approx(once + longest, rel=1e-12)


def test_the_formula_of_chowdhery() -> None:
    """6 N + 12 L H Q T a token (Chowdhery et al. 2022, appendix B), where N are the weights of matrices."""
    config = PaperformerLMConfig.from_preset("gpt2")
    parts, length = count_parameters(config), 512
    biases = config.num_hidden_layers * (4 * 768 + 4 * 768 + 768)
    weights = parts["attention"] + parts["feed-forward"] + parts["embeddings"] - biases  # tied: it is the head as well
    per_token = 6 * weights + 12 * 12 * 12 * 64 * length
    assert StepFlops(config)(text_batch([length, length])) == pytest.approx(2 * length * per_token, rel=1e-12)


def test_what_is_computed_again_is_no_work_of_the_model() -> None:
    config = seq2seq()
    assert StepFlops(config)(pair_batch([9], [7])) < training_flops(config, 7, 9, gradient_checkpointing=True)


def test_causal_linear_attention_counts_the_tokens_of_its_last_chunk() -> None:
    options = {"linear_attention": True, "position_embedding_type": "none", "pad_token_id": 0}
    config = PaperformerLMConfig(num_hidden_layers=2, vocab_size=97, **options)
    flops = StepFlops(config)
    whole = training_flops(config, 3 * CHUNK_SIZE)
    assert flops(text_batch([3 * CHUNK_SIZE])) == pytest.approx(whole, rel=1e-12)
    assert flops(text_batch([CHUNK_SIZE // 4])) == pytest.approx(whole / 12, rel=1e-12)
    pairs = seq2seq(linear_attention=True, position_embedding_type="none")
    expected = training_flops(pairs, 2 * CHUNK_SIZE, 33)
    assert StepFlops(pairs)(pair_batch([33], [2 * CHUNK_SIZE])) == pytest.approx(expected, rel=1e-12)


def test_counting_takes_microseconds() -> None:
    flops, batch = StepFlops(seq2seq()), pair_batch([20] * 200, [20] * 200)
    flops(batch)

    def timed() -> float:
        start = time.perf_counter()
        flops(batch)
        return time.perf_counter() - start

    assert min(timed() for _ in range(50)) < 1e-3


# --- energy


class Clock:
    """Seconds that go by only when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(utilisation, "time", SimpleNamespace(perf_counter=clock))
    return clock


WRAPS_AT = 262_143_328_850  # microjoules, as processors have it


@pytest.fixture
def powercap(tmp_path: Path) -> Path:
    """What Linux has of a machine with two packages."""
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:1:0": "core",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",  # the same package once more
    }
    for zone, name in zones.items():
        (tmp_path / zone).mkdir()
        (tmp_path / zone / "name").write_text(f"{name}\n")
        (tmp_path / zone / "max_energy_range_uj").write_text(f"{WRAPS_AT}\n")
        (tmp_path / zone / "energy_uj").write_text("1000\n")
    (tmp_path / "intel-rapl").mkdir()
    return tmp_path


def count(powercap: Path, zone: str, microjoules: int) -> None:
    (powercap / zone / "energy_uj").write_text(f"{microjoules}\n")


def test_packages_of_processors(powercap: Path) -> None:
    meter = EnergyMeter(CPU, 1, 1, device_watts=50.0, powercap=powercap)
    for zone in (path.name for path in powercap.glob("*:*")):
        count(powercap, zone, 3_001_000)
    assert meter.joules() == 6  # two packages, nothing twice
    count(powercap, "intel-rapl:1", 13_001_000)
    assert meter.joules() == 16
    meter.start()
    assert meter.joules() == 0
    assert meter.source == "measured by RAPL (processor packages only)"


def test_a_counter_that_wraps_around(powercap: Path, clock: Clock) -> None:
    count(powercap, "intel-rapl:0", WRAPS_AT - 4_000_000)
    meter = EnergyMeter(CPU, 1, 1, None, powercap)
    clock.now += 60
    count(powercap, "intel-rapl:0", 1_999_999)  # the count after WRAPS_AT is 0
    assert meter.joules() == 6
    count(powercap, "intel-rapl:0", 2_999_999)
    assert meter.joules() == 7
    assert "lower bound" not in meter.source
    clock.now += WRAPS_AT / 1e6 / utilisation.MOST_WATTS + 1
    assert meter.joules() == 7
    assert meter.source == "measured by RAPL (processor packages only), a lower bound"


def test_processes_share_the_packages_of_a_host_and_other_hosts_take_as_much(powercap: Path) -> None:
    meter = EnergyMeter(CPU, 4, 4, None, powercap)
    scaled = EnergyMeter(CPU, 8, 4, None, powercap)
    count(powercap, "intel-rapl:0", 5_001_000)
    assert (meter.joules(), scaled.joules()) == (5, 10)
    assert meter.source == "measured by RAPL (processor packages only)"
    assert scaled.source == "measured by RAPL (processor packages only) on 4 of 8 devices, and scaled up"


@pytest.mark.parametrize("content", [None, "not a number", ""])
def test_counters_that_cannot_be_read(powercap: Path, clock: Clock, content: str | None) -> None:
    """As where only root may: then there is no file to open."""
    file = powercap / "intel-rapl:1" / "energy_uj"
    file.unlink() if content is None else file.write_text(content)
    meter = EnergyMeter(CPU, 3, 1, device_watts=20.0, powercap=powercap)
    clock.now += 10
    assert meter.joules() == 600
    assert meter.source == "device_watts x time x devices (an upper estimate)"
    assert EnergyMeter(CPU, 3, 1, None, powercap).source == "not known"


def test_a_counter_that_disappears(powercap: Path, clock: Clock) -> None:
    with_watts, without = (EnergyMeter(CPU, 1, 1, watts, powercap) for watts in (20.0, None))
    (powercap / "intel-rapl:0" / "energy_uj").unlink()
    clock.now += 2
    assert (with_watts.joules(), without.joules()) == (40, None)
    assert without.source == "not known"


def test_no_source_at_all(powercap: Path, tmp_path: Path) -> None:
    """Of another device than a processor, what the processor takes tells nothing."""
    for device, folder in ((CPU, tmp_path / "missing"), (GPU, powercap), (torch.device("mps"), powercap)):
        meter = EnergyMeter(device, 1, 1, None, folder)
        assert (meter.joules(), meter.source) == (None, "not known")


class Nvml(SimpleNamespace):
    """NVIDIA's library: energies in millijoules by device."""

    class NVMLError(Exception):
        pass

    def __init__(self, **energies: int):
        self.energies = energies

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByUUID(self, name: str) -> str:  # noqa: N802
        return name

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        if handle.removeprefix("GPU-") not in self.energies:
            raise self.NVMLError("Not Supported")
        return self.energies[handle.removeprefix("GPU-")]


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    library = Nvml(one=5000, two=7000)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", library)
    names = ["two", "one"]  # as CUDA_VISIBLE_DEVICES may order them
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=names[device.index]))
    return library


def test_boards_of_gpus(nvml: Nvml, powercap: Path) -> None:
    one, both = (EnergyMeter(GPU, count, count, 300.0, powercap) for count in (1, 2))
    nvml.energies.update(one=6000, two=9000)
    assert (one.joules(), both.joules()) == (2, 3)
    assert one.source == "measured by NVML (GPU boards only)"


def test_gpus_without_counters(nvml: Nvml, powercap: Path, clock: Clock) -> None:
    meter = EnergyMeter(GPU, 1, 1, 300.0, powercap)
    del nvml.energies["two"]
    clock.now += 2
    assert meter.joules() == 600
    assert EnergyMeter(GPU, 1, 1, None, powercap).source == "not known"  # not what its host's processor takes
