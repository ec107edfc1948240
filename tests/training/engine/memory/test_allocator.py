"""The allocator setting, by what it does: a large block freed and taken again costs no new memory pages."""

import ctypes
import platform
import subprocess
import sys

import pytest

from paperformer.training.engine.memory import allocator

# The setting lasts for the life of a process, so each measurement has its own, without the imports of the package.
COUNT_PAGE_FAULTS = """
import resource, runpy, sys
print(runpy.run_path(sys.argv[1])["keep_large_buffers"]())

def use_and_free():
    bytearray(2**26)  # 64 MB
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):  # the heap grows
    use_and_free()
before = faults()
for _ in range(5):
    use_and_free()
print(faults() - before)
"""

on_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")


def setting_and_page_faults(**environment: str) -> tuple[bool, int]:
    """Whether the setting was made, and how many pages five blocks of 64 MB took from the operating system."""
    command = [sys.executable, "-I", "-c", COUNT_PAGE_FAULTS, allocator.__file__]
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    made, faults = output.split()
    return made == "True", int(faults)


@on_glibc
def test_freed_blocks_are_used_again():
    made, faults = setting_and_page_faults()
    assert made
    assert faults < 50  # 81,920 pages if taken anew


@on_glibc
@pytest.mark.parametrize("name", allocator.USER_SETTINGS)
def test_the_setting_of_the_user_wins(name):
    value = "glibc.malloc.check=0" if name == "GLIBC_TUNABLES" else str(2**20)
    made, faults = setting_and_page_faults(**{name: value})
    assert not made
    assert faults >= 5  # as ever: anew each time


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_without_glibc_nothing_happens_and_the_reason_is_logged(monkeypatch, caplog, error):
    def no_such_library(name):
        raise error

    for name in allocator.USER_SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(ctypes, "CDLL", no_such_library)
    with caplog.at_level("INFO"):
        assert allocator.keep_large_buffers() is False
    assert "not glibc" in caplog.text
