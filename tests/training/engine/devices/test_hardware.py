import os

import pytest
import torch

from paperformer.training.engine.devices.hardware import describe_hardware


@pytest.mark.parametrize(("cores", "words"), [({0}, "1 core of "), ({0, 3}, "2 cores of ")])
def test_a_cpu(cores: set[int], words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: cores, raising=False)
    description = describe_hardware()
    assert description.startswith(words)
    assert len(description) > len(words)


def test_graphics_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Z9")
    assert describe_hardware() == "4 x NVIDIA Z9"
