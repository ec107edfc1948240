"""Measurements of memory, each in a process that has done nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Together
from . import measured_memory


@pytest.fixture
def measured(together: Together, tmp_path: Path) -> Callable[..., Any]:
    """What `measured_memory.py` prints."""
    return lambda *arguments: json.loads(*together(measured_memory.__file__, tmp_path, arguments=arguments))
