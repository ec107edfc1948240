from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from paperformer.training.reporting import energy
from paperformer.training.reporting.energy import EnergyMeter

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class Clock:
    """Seconds that go by only when told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=clock))
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


def test_packages_of_cpus(powercap: Path) -> None:
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
    clock.now += WRAPS_AT / 1e6 / energy.MOST_WATTS + 1
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
    """Of another device than a CPU, what the CPU takes tells nothing."""
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
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=names[index]))
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
    assert EnergyMeter(GPU, 1, 1, None, powercap).source == "not known"  # not what its host's CPU takes
