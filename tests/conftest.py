"""What holds for all tests."""

import gc
import os

# Nothing here is fetched; without this, transformers looks for an adapter on the Hub even where `local_files_only` is
# given, and tries for 20 seconds if there is no network. Before the first import: huggingface_hub reads it then.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import pytest
from hypothesis import settings

settings.register_profile("busy", deadline=None)  # two workers and what they start share the cores
settings.load_profile("busy")
gc.disable()  # the imports make millions of objects that stay


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: of two workers, neither is left with one when the other has finished."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins garbage collection, without what the imports have made: it would walk through all of that each time."""
    gc.collect()
    gc.freeze()
    gc.enable()
