import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paperformer.training.engine.memory.meters import DeviceMemory, ResidentMemory, find_control_group_room

MB = 10**6


@pytest.mark.parametrize("way", ["counted", "sampled"])
def test_the_peak_of_the_process_is_seen_whatever_it_has_freed_before(way: str, measured: Callable[..., Any]) -> None:
    peak, after = measured("peak", way)
    assert peak == pytest.approx(140 * MB, rel=0.1)
    assert after < 14 * MB


def test_a_control_group_limits_what_is_free(tmp_path: Path) -> None:
    assert find_control_group_room(tmp_path) == math.inf

    def write(path: str, text: object) -> None:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(f"{text}\n")

    write("proc/self/cgroup", "0::/jobs/mine")
    write("sys/fs/cgroup/jobs/mine/memory.max", "max")
    write("sys/fs/cgroup/jobs/memory.max", 1000)
    write("sys/fs/cgroup/jobs/memory.current", 700)
    write("sys/fs/cgroup/jobs/memory.stat", "anon 500\ninactive_file 150")
    assert find_control_group_room(tmp_path) == 450
    write("proc/self/cgroup", "5:cpu,memory:/docker/4f2a\n3:pids:/x")  # whose own folder is the top one inside of it
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", 2000)
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", 900)
    write("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100")
    assert find_control_group_room(tmp_path) == 1200


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
