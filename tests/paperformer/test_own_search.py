"""With how many beams and which length penalty a model translates where nobody says it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import paperformer
from paperformer.api.given_models import search_of
from paperformer.cli import main
from paperformer.training.console.input_error import InputError

TEXTS = ["A dog runs on the beach.", "Two men talk.", "A cat sings a song in the house."]


def says(folder: Path, **settings: float) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "generation_config.json").write_text(json.dumps(settings), "utf-8")
    return folder


@pytest.fixture
def model(seq2seq: Any, tmp_path: Path) -> Path:
    """A folder whose model says that it takes three beams and likes long translations."""
    folder = tmp_path / "model"
    shutil.copytree(seq2seq.folder, folder)
    own = json.loads((folder / "generation_config.json").read_text("utf-8"))
    return says(folder, **own | {"num_beams": 3, "length_penalty": 4.0})


@pytest.mark.parametrize(
    ("own", "given", "expected"),
    [
        ({"num_beams": 4, "length_penalty": 1.8}, {}, (4, 1.8)),
        ({"num_beams": 4, "length_penalty": 1.8}, {"num_beams": 2}, (2, 1.8)),
        ({"num_beams": 4, "length_penalty": 1.8}, {"length_penalty": 0.0}, (4, 0.0)),
        ({"num_beams": 4, "length_penalty": 0.0}, {"num_beams": 1}, (1, 0.0)),
        ({"num_beams": 4}, {"n_best": 3}, (4, 1.0)),
        ({"num_beams": 4}, {"n_best": 7}, (7, 1.0)),
        ({"num_beams": 4}, {"n_best": 7, "num_beams": 5}, (5, 1.0)),  # which is refused later, with both numbers
        ({"num_beams": 1}, {}, (1, 1.0)),  # a run that was scored greedily says so
        ({"num_beams": 1}, {"n_best": 3}, (3, 1.0)),
        ({}, {}, (5, 1.0)),
    ],
)
def test_what_is_given_then_the_models_own_then_five(
    tmp_path: Path, own: dict[str, Any], given: dict[str, Any], expected: tuple[int, float]
) -> None:
    assert search_of(says(tmp_path / "model", **own), **given) == expected


def test_models_that_say_nothing(tmp_path: Path, seq2seq: Any) -> None:
    assert search_of(tmp_path / "nowhere") == (5, 1.0)  # loading it will say that it is not there
    assert search_of(seq2seq.model) == (2, 1.0)
    assert search_of("cldr-en-de") == (4, 1.0)


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"num_beams": "3"}, "num_beams is '3'; it must be an integer from 1"),
        ({"num_beams": -2}, "num_beams is -2"),
        ({"num_beams": True}, "num_beams is True"),
        ({"length_penalty": "long"}, "length_penalty is 'long'; it must be a number"),
        ({"length_penalty": float("nan")}, "length_penalty is nan"),
    ],
)
def test_settings_that_are_none(tmp_path: Path, own: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=f"model: its own {said}"):
        search_of(says(tmp_path / "model", **own))


def test_texts_are_translated_and_scored_as_the_model_says(model: Path, tmp_path: Path, capsys: Any) -> None:
    expected = paperformer.translate(model, TEXTS, 3, 4.0)
    assert expected != paperformer.translate(model, TEXTS, 5, 1.0)
    assert paperformer.translate(model, TEXTS) == expected
    scores = {score.metric.name: score.value for score in paperformer.evaluate(model, TEXTS, expected, resamples=0)}
    assert scores["exact_match"] == 100
    (tmp_path / "a.txt").write_text("".join(f"{text}\n" for text in TEXTS), "utf-8")
    (tmp_path / "b.txt").write_text("".join(f"{text}\n" for text in expected), "utf-8")
    capsys.readouterr()
    main(["translate", str(model), "--input", str(tmp_path / "a.txt")])
    assert capsys.readouterr().out.splitlines() == expected
    files = [str(tmp_path / "a.txt"), "--reference", str(tmp_path / "b.txt")]
    main(["evaluate", str(model), *files, "--resamples", "0", "--metrics", "[exact_match]", "--format", "json"])
    out = capsys.readouterr().out
    assert json.loads(out)["exact_match"] == 100


def test_the_server_answers_as_the_model_says(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    def ask(application: Any, *_: Any) -> None:
        with TestClient(application) as client:
            found.append(client.post("/translate", json={"text": TEXTS}).json()["translations"])
            found.append(client.post("/translate", json={"text": TEXTS, "num_beams": 5}).json()["translations"])

    monkeypatch.setattr("paperformer.serving.server.serve", ask)
    main(["serve", str(model), "--port", "0"])
    asked = [[own[0]["text"] for own in answer] for answer in found]
    assert asked == [paperformer.translate(model, TEXTS, beams, 4.0) for beams in (3, 5)]
    assert asked[0] != asked[1]
