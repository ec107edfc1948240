import itertools
from collections.abc import Callable

import pytest
import torch

from paperformer.training.console.input_error import InputError
from paperformer.training.costs import peak_flops as module
from paperformer.training.costs.peak_flops import PEAK_TFLOPS, measure_flops, peak_flops, peak_flops_of

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(("name", "expected"), [("A100", 312e12), ("rtx 4090", 165.2e12), ("RTX-3090", 71e12)])
def test_devices_by_name(name: str, expected: float) -> None:
    assert peak_flops(name, "bf16") == expected


def test_half_precision_is_faster_and_bfloat16_as_fast_as_float16() -> None:
    for speeds in PEAK_TFLOPS.values():
        assert speeds["fp16"] > speeds["fp32"]
        assert speeds.get("bf16", speeds["fp16"]) == speeds["fp16"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("A1000", "--hardware is A1000; did you mean A100?"),
        ("toaster", "--hardware is toaster; there are P100, V100, .* and this"),
        ("P100", "--precision is bf16, which P100 cannot multiply; it must be fp32 or fp16"),
    ],
)
def test_unknown_devices(name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        peak_flops(name, "bf16")


def test_the_speed_of_this_machine_is_that_of_its_fastest_product(monkeypatch: pytest.MonkeyPatch) -> None:
    # The clock goes on by so much: at the first call, around the products, and between them. The third is the fastest.
    steps = [0, *(0, 9), *(0, 4), 0, *(0, 2), 0, *(0, 3), 100]
    times = itertools.accumulate(steps)
    monkeypatch.setattr(module.time, "perf_counter", lambda: float(next(times)))
    assert measure_flops("fp32", seconds=50) == 2 * 1024**3 / 2
    monkeypatch.setattr(module, "measure_flops", lambda precision: {"fp16": 7.0}[precision])
    assert peak_flops("this", "fp16") == 7.0


@pytest.fixture
def gpu_named(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], torch.device]:
    """A GPU of this name; what is measured is 7."""

    def named(name: str) -> torch.device:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: name)
        return GPU

    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(module, "measure_flops", lambda precision: {"fp32": 7.0, "bf16": 14.0, "fp16": 15.0}[precision])
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


def test_a_cpu_is_measured_and_the_random_state_stays() -> None:
    before = torch.get_rng_state()
    assert peak_flops_of(CPU, "no") > 1e8
    assert torch.get_rng_state().equal(before)
