"""Which models a page shows, and its command."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paperformer.demo.models import fill_masks, find_models, preload
from paperformer.shipped_models import shipped_models
from paperformer.training.console.input_error import InputError


def test_without_names_those_that_come_with_the_package() -> None:
    found = find_models([])
    assert [(model.name, model.task) for model in found] == [
        ("cldr-en-de", "translation"),
        ("shakespeare", "text-generation"),
    ]
    assert [model.example for model in found] == [model.example for model in shipped_models().values()]


def test_models_of_one_name_are_told_apart(seq2seq: Any, tmp_path: Path) -> None:
    other = tmp_path / seq2seq.folder.name
    other.symlink_to(seq2seq.folder)
    places = [str(seq2seq.folder), str(seq2seq.folder), str(other)]
    # The link and its target are two places, and resolve to one name.
    assert [model.name for model in find_models(places)] == ["tiny-en-de", "tiny-en-de (2)"]


def test_a_model_is_loaded_once(seq2seq: Any) -> None:
    (model,) = find_models([str(seq2seq.folder)])
    preload([model])
    engine = model.engine
    assert model.translator.model is engine.model  # type: ignore[attr-defined]
    assert model.engine is engine


def test_masks_are_filled_in(encoder: Any) -> None:
    (model,) = find_models([str(encoder.folder)])
    assert model.example == "The dog <mask> on the beach."
    (found,) = fill_masks(model.filler, model.example, 5)
    assert len(found) == 5
    assert [each.probability for each in found] == sorted((each.probability for each in found), reverse=True)
    with pytest.raises(InputError, match="there is no <mask> in the text"):
        fill_masks(model.filler, "A dog")
    with pytest.raises(InputError, match="the model takes 64"):
        fill_masks(model.filler, "A <mask> runs." * 40)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, refused: Callable[..., str]) -> None:
    for name in [name for name in sys.modules if name.startswith("paperformer.demo.pages")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("paperformer.demo.pages", raising=False)
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert refused("demo") == "demo needs gradio: pip install 'paperformer[demo]'"


def test_a_model_that_is_not_there_is_refused(refused: Callable[..., str]) -> None:
    assert refused("demo", "./nowhere") == "there is no folder ./nowhere"
