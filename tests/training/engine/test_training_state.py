from types import SimpleNamespace
from typing import Any

import pytest
import torch

from paperformer.training.console.input_error import InputError
from paperformer.training.engine.training_state import _build


def failing(error: Exception) -> Any:
    def build_model() -> None:
        raise error

    return SimpleNamespace(build_model=build_model)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 32000000000 bytes."),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9 GiB"),
        MemoryError(),
    ],
)
def test_a_model_that_does_not_fit_into_memory_ends_in_one_line(error: Exception) -> None:
    with pytest.raises(InputError, match=r"model: it does not fit into memory \(.+\); make it smaller") as raised:
        _build(failing(error))
    assert "\n" not in str(raised.value)


def test_other_errors_of_a_model_are_not_hidden() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes"):
        _build(failing(RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
