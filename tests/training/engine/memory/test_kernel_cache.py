"""The bound of oneDNN's cache, by what it does: products of many shapes leave little in memory."""

import os
import subprocess
import sys

import pytest

from paperformer.training.engine.memory import kernel_cache

# The libraries read their settings once, so each measurement has a process of its own.
GROW = """
import runpy, sys
import psutil, torch
torch.set_num_threads(1)
print(runpy.run_path(sys.argv[1])["bound_kernel_cache"]())
matrix = torch.ones(64, 64, dtype=torch.bfloat16)

def resident_after_rows(first, last):
    for rows in range(first, last):
        torch.ones(rows, 64, dtype=torch.bfloat16) @ matrix
    return psutil.Process().memory_info().rss
before = resident_after_rows(1, 100)
print(resident_after_rows(100, 400) - before)
"""


def setting_and_growth(**environment: str) -> tuple[bool, float]:
    """Whether the setting was made, and by how many MB a process grew over 300 shapes."""
    bare = {name: value for name, value in os.environ.items() if name not in kernel_cache.SETTINGS}
    command = [sys.executable, "-c", GROW, kernel_cache.__file__]
    output = subprocess.run(command, env=bare | environment, capture_output=True, text=True, check=True).stdout
    made, growth = output.split()
    return made == "True", int(growth) / 1e6


@pytest.mark.proof
def test_a_process_grows_little_unless_it_is_told_to() -> None:
    made, growth = setting_and_growth()
    asked, grown = setting_and_growth(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024")
    assert (made, asked) == (True, False)
    if grown < 100:
        pytest.skip("this processor leaves bfloat16 to another library")
    assert growth < grown / 4


def test_the_setting_of_the_user_wins(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    for name in kernel_cache.SETTINGS:
        for other in kernel_cache.SETTINGS:
            monkeypatch.delenv(other, raising=False)
        monkeypatch.setenv(name, "7")
        with caplog.at_level("INFO"):
            assert kernel_cache.bound_kernel_cache() is False
        assert {other: os.environ.get(other) for other in kernel_cache.SETTINGS} == {
            other: "7" if other == name else None for other in kernel_cache.SETTINGS
        }
        assert f"the environment sets {name}" in caplog.messages[-1]
