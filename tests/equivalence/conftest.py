"""Every proof starts from a seed and leaves its result in pytest's report; docs/equivalence.md is made from that."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
import torch

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
    """`comparison.compare`, which also records what was compared.

    Its further arguments are the name of the reference and what the comparison shows, a few words each.
    """

    def prove(*args: Any, reference: str, shows: str, **kwargs: Any) -> Differences:
        differences = compare(*args, **kwargs)
        record = {"reference": reference, "shows": shows, "tolerance": TOLERANCE, **asdict(differences)}
        for name, value in record.items():
            record_property(name, value)
        return differences

    return prove
