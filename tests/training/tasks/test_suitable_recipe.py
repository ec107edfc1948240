"""From one file to a recipe."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from paperformer.training.console.input_error import InputError
from paperformer.training.recipe.recipe import Recipe
from paperformer.training.run import main
from paperformer.training.tasks.registry import OBJECTIVES
from paperformer.training.tasks.suitable_recipe import SIZES

PAIRS = [(f"The man number {n} sings.", f"Der Mann Nummer {n} singt.") for n in range(400)]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Someone's files, in the working folder."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{a}\t{b}\n" for a, b in PAIRS]
    (tmp_path / "plain.tsv").write_text("".join(rows), "utf-8")
    (tmp_path / "headed.tsv").write_text("".join(["en\tde\n", *rows]), "utf-8")
    (tmp_path / "table.csv").write_text("id,en,de\n" + "".join(f'{n},"{a}","{b}"\n' for n, (a, b) in enumerate(PAIRS)))
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps({"en": a, "is": b}) + "\n" for a, b in PAIRS), "utf-8")
    for side, language in enumerate(("en", "pt_BR")):
        (tmp_path / f"corpus.{language}").write_text("".join(f"{pair[side]}\n" for pair in PAIRS), "utf-8")
    (tmp_path / "story.txt").write_text("".join(f"{a} {b}\n" for a, b in PAIRS), "utf-8")
    return tmp_path


def read(objective: str, **options: Any) -> Recipe[Any]:
    words = [word for name, value in options.items() for word in (f"--{name.replace('__', '.')}", str(value))]
    return OBJECTIVES[objective].read_recipe(words)


@pytest.mark.parametrize(
    ("train", "given", "languages", "name"),
    [
        ("plain.tsv", {"source": "en", "target": "de"}, ("en", "de"), "plain-en-de"),
        ("headed.tsv", {}, ("en", "de"), "headed-en-de"),
        ("headed.tsv", {"target": "en"}, ("de", "en"), "headed-de-en"),
        ("rows.jsonl", {"target": "is"}, ("en", "is"), "rows-en-is"),
        ("corpus", {"target": "pt_BR"}, ("en", "pt_BR"), "corpus-en-pt_BR"),
        ("corpus", {"source": "pt_BR"}, ("pt_BR", "en"), "corpus-pt_BR-en"),
    ],
)
def test_languages_and_name_come_from_the_file(
    train: str, given: dict[str, str], languages: tuple[str, str], name: str
) -> None:
    recipe = read("seq2seq", data__train=train, **{f"data__{side}_language": code for side, code in given.items()})
    assert (recipe.data.source_language, recipe.data.target_language) == languages
    assert recipe.run.name == name
    assert recipe.data.hold_out == 0.1
    assert yaml.safe_load(recipe.yaml)["data"]["source_language"] == languages[0]


@pytest.mark.parametrize(
    ("train", "given", "message"),
    [
        (
            "plain.tsv",
            {},
            "from which language into which? it does not name them; give --data.source_language CODE and",
        ),
        (
            "plain.tsv",
            {"target": "is"},
            r"it does not name them; give --data.source_language CODE, such as en or pt_BR",
        ),
        ("corpus", {}, "it names en and pt_BR; give --data.source_language CODE and --data.target_language CODE"),
        ("table.csv", {"target": "de"}, "it names id and en and de; give --data.source_language CODE"),
        ("headed.tsv", {"source": "en", "target": "fr"}, "headed.tsv has en and de; the languages are en and fr"),
        ("none.tsv", {"source": "en", "target": "fr"}, "there is no none.tsv"),
    ],
)
def test_languages_are_asked_for_where_the_data_does_not_say(train: str, given: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        read("seq2seq", data__train=train, **{f"data__{side}_language": code for side, code in given.items()})


def test_a_header_that_names_the_languages_is_no_pair() -> None:
    splits = OBJECTIVES["seq2seq"].open_splits(read("seq2seq", data__train="headed.tsv"))
    sources = [text for part in (splits.train, splits.validation, splits.test) for text in part.texts("source")]
    assert sorted(sources) == sorted(a for a, _ in PAIRS)


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "seq2seq"])
def test_running_text_needs_one_option(objective: str) -> None:
    recipe = read(objective, data__train="story.txt")
    assert recipe.run.name == f"story-{objective}"
    assert recipe.data.hold_out == 0.1
    assert recipe.data.language is None  # nobody said
    assert recipe.optimization.max_steps < 2000


def test_what_is_given_goes_before_what_is_chosen() -> None:
    given = {"model__hidden_size": 64, "data__hold_out": 0.1, "name": "mine", "optimization__max_steps": 7}
    recipe = read("lm", data__train="story.txt", **given)
    assert (recipe.model["hidden_size"], recipe.data.hold_out, recipe.run.name) == (64, 0.1, "mine")
    assert recipe.optimization.max_steps == 7


def test_with_parts_of_its_own_nothing_is_held_out(folder: Path) -> None:
    for name in ("v.txt", "t.txt"):
        (folder / name).write_text("A line.\n", "utf-8")
    assert read("lm", data__train="story.txt", data__validation="v.txt", data__test="t.txt").data.hold_out == 0
    with pytest.raises(InputError, match=r"data.validation is given and data.test is not; give both, or neither"):
        read("lm", data__train="story.txt", data__validation="v.txt")


def test_the_size_follows_the_amount_of_text(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [recipe_of_size(folder, round(1e6 * megabytes), monkeypatch) for megabytes in (0.5, 3, 30, 300, 3000)]
    parameters = [recipe.model["hidden_size"] * recipe.model["num_hidden_layers"] for recipe in sizes]
    assert parameters == sorted(parameters)
    assert len(set(parameters)) == len(SIZES)
    assert [recipe.data.hold_out for recipe in sizes] == [0.05, 0.02, 0.02, 0.02, 0.02]
    vocabularies = [recipe.tokenizer.vocab_size for recipe in sizes]
    assert vocabularies == [4000, 4000, 8000, 16000, 32000]
    assert all(400 <= recipe.optimization.max_steps <= 200_000 for recipe in sizes)


def test_text_of_which_nothing_can_be_held_out_is_told_what_to_give(folder: Path) -> None:
    (folder / "tiny.txt").write_text("One line.\n", "utf-8")
    with pytest.raises(
        InputError, match=r"data.hold_out is 0.1, by which so little text leaves nothing for the validation"
    ):
        OBJECTIVES["lm"].open_splits(read("lm", data__train="tiny.txt"))


def recipe_of_size(folder: Path, num_bytes: int, monkeypatch: pytest.MonkeyPatch) -> Recipe[Any]:
    """Of a file of holes."""
    with (folder / "big.txt").open("wb") as file:
        file.truncate(num_bytes)
    return read("lm", data__train="big.txt")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "nothing says what to train on; give --data.train FILE, or a recipe: --config NAME"),
        (
            {"data__dataset": "plain.tsv"},
            "data.dataset is the file plain.tsv; a file is given as --data.train plain.tsv",
        ),
        ({"name": "gone", "resume": "true"}, "there is no run runs/gone to resume; give its --name and --output_dir"),
    ],
)
def test_the_first_error_says_what_to_do(options: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read("seq2seq", **options)


def test_from_one_file_to_a_model_and_on_by_its_name(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever a recipe chooses is only made smaller here, to take seconds."""
    small = {"model.hidden_size": 16, "model.intermediate_size": 16, "model.num_attention_heads": 2}
    small |= {"tokenizer.vocab_size": 300, "optimization.max_steps": 4, "evaluation.every_steps": 2}
    small |= {"evaluation.num_beams": 1, "data.max_length": 40, "data.hold_out": 0.05}
    words = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    model = main(OBJECTIVES["seq2seq"], ["--data.train", "headed.tsv", *words])
    assert model == Path("runs/headed-en-de/model")
    assert "no recipe was given; headed-en-de gets one:" in capfd.readouterr().err
    scores = json.loads((model / "evaluation.json").read_text("utf-8"))
    held_out = scores["validation"]["sentences"] + scores["test"]["sentences"]
    assert 20 < held_out < 70
    assert "| train |" in (model / "README.md").read_text("utf-8")

    main(OBJECTIVES["seq2seq"], ["--name", "headed-en-de", "--resume", "--optimization.max_steps", "6"])
    steps = [json.loads(line)["step"] for line in Path("runs/headed-en-de/metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 6
    (folder / "headed.tsv").unlink()
    with pytest.raises(SystemExit):
        main(OBJECTIVES["seq2seq"], ["--name", "headed-en-de", "--resume", "--optimization.max_steps", "8"])
    assert "there is no headed.tsv" in capfd.readouterr().err


@pytest.mark.parametrize("path", ["*.txt", "[draft.txt", "2024", "null"])
def test_a_path_is_a_path_whatever_yaml_takes_it_for(path: str, folder: Path) -> None:
    with pytest.raises(InputError, match=re.escape(f"there is no {path}")):
        read("lm", data__train=path)
