"""What holds for all tests."""

import gc
import os

# Nothing here is fetched; without this, transformers looks for an adapter on the Hub even where `local_files_only` is
# given, and tries for 20 seconds if there is no network. Before the first import: huggingface_hub reads it then.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.pop("FORCE_COLOR", None)  # which continuous integration may set: what is printed is compared

import pytest
import torch
from hypothesis import settings

# No deadlines: two workers and what they start share the cores.
settings.register_profile("quick", deadline=None, max_examples=25)
settings.register_profile("thorough", deadline=None, max_examples=100)  # what hypothesis has if not told otherwise
settings.load_profile("quick")
torch.set_num_threads(1)  # some tests fork, and a fork waits for ever for the threads of its parent
gc.disable()  # the imports make millions of objects that stay


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with long proofs come first: of two workers, neither is left with one when the other has finished."""
    long = {item.path for item in items if item.get_closest_marker("proof")}
    items.sort(key=lambda item: item.path not in long)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Begins garbage collection, without what the imports have made: it would walk through all of that each time."""
    gc.collect()
    gc.freeze()
    gc.enable()
