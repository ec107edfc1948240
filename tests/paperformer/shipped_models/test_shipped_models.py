"""The models that come with the package: they are what the manifest says, are found by their names, and are good."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from huggingface_hub import metadata_load

import paperformer
from paperformer.api.given_models import place_of
from paperformer.api.text_scores import evaluate_text
from paperformer.cli import main
from paperformer.commands.loading import load_model
from paperformer.shipped_models import FOLDER, find_shipped, shipped_models
from paperformer.training.data.built_in.shakespeare import TEST_PLAYS, plays
from paperformer.training.exact_weights import hash_weights

NAMES = ["cldr-en-de", "shakespeare"]

HELD_OUT = [  # of the test split of its run
    (
        "Japanese Yen, Hungarian Forint, and Philippine Peso",
        "Japanischer Yen, Ungarischer Forint und Philippinischer Peso",
    ),
    ("-446,506", "-446.506"),
    ("94%", "94\xa0%"),
    ("442.76%", "442,76\xa0%"),
    ("Mexican Peso and Ukrainian Hryvnia", "Mexikanischer Peso und Ukrainische Hrywnja"),
    ("73.947", "73,947"),
    ("3,542.78 Saudi riyals", "3.542,78 Saudi-Rial"),
    ("CHF955.30", "955,30\xa0CHF"),
    ("3/30/42, 6:03\u202fAM", "30.03.42, 06:03"),
    ("Türkiye and Serbia", "Türkei und Serbien"),
    ("Cuba, Spain, and Chile", "Kuba, Spanien und Chile"),
    ("10/20/72", "20.10.72"),
    ("11:38:27\u202fAM", "11:38:27"),
    ("October 15, 1962", "15. Oktober 1962"),
    ("12/30/58, 8:03\u202fPM", "30.12.58, 20:03"),
    ("NZ$901.43", "901,43\xa0NZ$"),
    ("PLN4.00", "4,00\xa0PLN"),
    ("7:45\u202fAM", "07:45"),
    ("8,826 weeks", "8.826 Wochen"),
    ("Zulu and Bulgarian", "Zulu und Bulgarisch"),
    ("France, Peru, or Russia", "Frankreich, Peru oder Russland"),
    ("5,436.00 Indonesian rupiahs", "5.436,00 Indonesische Rupiah"),
    ("6,516 hours", "6.516 Stunden"),
    ("CA$108.00", "108,00\xa0CA$"),
    ("Thu, Sep 6", "Do., 6. Sept."),
]


def test_the_manifest_lists_what_is_there() -> None:
    folders = {path.name for path in FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert list(shipped_models()) == NAMES
    assert folders == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_files_are_those_of_the_manifest(name: str) -> None:
    model = shipped_models()[name]
    files = {path.name: path for path in model.folder.iterdir() if path.is_file()}
    assert {file: hashlib.sha256(path.read_bytes()).hexdigest() for file, path in files.items()} == model.sha256
    entry = json.loads(files["evaluation.json"].read_text("utf-8"))["test"]
    assert entry["weights_sha256"] == hash_weights(model.folder)
    assert entry["task"] == model.task


def test_they_are_small() -> None:
    files = [path for path in FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert sum(path.stat().st_size for path in files) < 8_000_000


@pytest.mark.parametrize(("name", "source"), [("cldr-en-de", "Unicode License"), ("shakespeare", "public domain")])
def test_cards_name_the_licences(name: str, source: str) -> None:
    card = (shipped_models()[name].folder / "README.md").read_text("utf-8")
    licence = card.partition("## Licence\n")[2]
    assert "Apache-2.0" in licence
    assert source in licence
    assert metadata_load(shipped_models()[name].folder / "README.md")["license"] == "apache-2.0"
    assert "| float32 | float16 |" in card


def test_a_folder_of_that_name_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert place_of("cldr-en-de") == str(shipped_models()["cldr-en-de"].folder)
    assert find_shipped("someone/cldr-en-de") is None
    Path("cldr-en-de").mkdir()
    assert place_of("cldr-en-de") == "cldr-en-de"


def test_an_unknown_name_is_told_of_them(refused: Callable[..., str]) -> None:
    assert refused("generate", "shakespear", "A").endswith("; paperformer itself brings cldr-en-de, shakespeare")


@pytest.mark.parametrize(
    ("command", "names"),
    [("translate", NAMES[:1]), ("generate", NAMES[1:]), ("serve", NAMES), ("demo", NAMES), ("evaluate", NAMES)],
)
def test_help_lists_them(command: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = " ".join(capsys.readouterr().out.replace("-\n", "-").split()).replace("- ", "-")
    assert [name for name in names if name not in shown] == []


def test_translations_are_as_good_as_the_card_says() -> None:
    scores = paperformer.evaluate("cldr-en-de", *map(list, zip(*HELD_OUT, strict=True)), num_beams=1, resamples=0)
    assert next(score.value for score in scores if score.metric.name == "bleu") > 96


def test_the_language_model_is_as_good_as_the_card_says() -> None:
    text = plays()[TEST_PLAYS[0]][:3000]  # not among those that it has read
    bits = next(score.value for score in evaluate_text("shakespeare", text) if score.metric.name == "bits_per_byte")
    assert bits < 2.6  # 2.08 on the text of its own test; an order-0 model of characters has 4.8
    assert paperformer.generate("shakespeare", "KING RICHARD:\n", 40).startswith("KING RICHARD:\n")


def test_weights_are_loaded_in_32_bits() -> None:
    model = load_model(place_of("shakespeare"))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_what_is_saved_from_one_carries_its_code(tmp_path: Path) -> None:
    load_model(place_of("shakespeare")).save_pretrained(tmp_path)
    assert (tmp_path / "modeling_lm.py").is_file()
    assert "auto_map" in json.loads((tmp_path / "config.json").read_text("utf-8"))
    assert not list(shipped_models()["shakespeare"].folder.glob("*.py"))
