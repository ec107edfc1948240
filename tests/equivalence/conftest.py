"""Every proof starts from a seed and leaves its result in pytest's report; docs/equivalence.md is made from that."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch
from torch import nn

from .comparison import TOLERANCE, Differences, compare


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(params=["sdpa", "eager"])
def attention(request: pytest.FixtureRequest) -> str:
    """Our attention implementations."""
    return request.param


@pytest.fixture(params=["right", "left"])
def side(request: pytest.FixtureRequest) -> str:
    """Where a batch is padded."""
    return request.param


@pytest.fixture
def prove(record_property: Callable[[str, object], None]) -> Callable[..., Differences]:
    """`comparison.compare`, in the models' own precision and then in float32, which also records what was compared.

    In float32 gradients are compared on the scale of the largest of all: those that are zero but for rounding have no
    scale of their own. Its further arguments are the name of the reference and what the comparison shows, a few words
    each.
    """

    def prove(ours: nn.Module, theirs: nn.Module, *args: Any, reference: str, shows: str, **kwargs: Any) -> Differences:
        differences = compare(ours, theirs, *args, **kwargs)
        rounded = compare(ours.float(), theirs.float(), *args, **kwargs, gradient_floor=1.0)
        record = {"reference": reference, "shows": shows, "tolerance": TOLERANCE, **asdict(differences)}
        record |= {f"{part} in float32": difference for part, difference in asdict(rounded).items()}
        for name, value in record.items():
            record_property(name, value)
        return differences

    return prove
