"""nanoGPT, which is no package: its model, from a checkout of its repository."""

import importlib.util
import sys
from pathlib import Path
from typing import Any


def load_nanogpt(checkout: Path) -> Any:
    """The module with `GPT` and `GPTConfig`."""
    specification = importlib.util.spec_from_file_location("nanogpt_model", checkout / "model.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["nanogpt_model"] = module  # its dataclass looks itself up there
    specification.loader.exec_module(module)
    return module
