"""What holds for all tests."""

import gc

import pytest


def pytest_collection_finish(session: pytest.Session) -> None:
    """Takes what the imports have made out of garbage collection, which walks through all of it again and again."""
    gc.collect()
    gc.freeze()
