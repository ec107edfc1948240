"""The exercises that train nothing: beams, cache, temperature."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from paperformer.exercises import cache as cache_exercise
from paperformer.exercises.beams import search, spread
from paperformer.exercises.cache import first_difference, read_lengths
from paperformer.exercises.temperature import continue_text, distinct
from paperformer.translation.likelihood import log_probabilities, until_end

from ..conftest import Saved
from .conftest import do

SOURCES = ["A dog runs on the beach.", "Two men talk.", "A dog talks.", "Two men run on the beach."]


@pytest.fixture(scope="module")
def pair_files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pairs")
    files = {"source": folder / "a.en", "reference": folder / "a.de"}
    files["source"].write_text("".join(f"{text}\n" for text in SOURCES), "utf-8")
    files["reference"].write_text("".join(f"| {text.upper()}\n" for text in SOURCES), "utf-8")
    return files


def test_until_end_counts_the_end_mark_and_nothing_behind_it() -> None:
    ids = torch.tensor([[5, 2, 0, 0], [5, 6, 7, 8], [2, 2, 2, 2]])
    assert until_end(ids, [2]).sum(1).tolist() == [2, 4, 1]
    assert until_end(ids, []).all()


def test_log_probabilities_are_those_of_each_token() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [0.0, 0.0]]])
    torch.testing.assert_close(log_probabilities(logits, torch.tensor([[1, 0]])).exp(), torch.tensor([[0.75, 0.5]]))


def test_beams_side_by_side(seq2seq: Saved, pair_files: dict[str, Path], tmp_path: Path) -> None:
    done = do(tmp_path, "beams", seq2seq.folder, sentences=3, **pair_files)
    figures = done.figures
    assert [row["source"] for row in figures["sentences"]] == [SOURCES[0], SOURCES[1], SOURCES[2]]
    assert figures["compared"] == 3
    differ = [row for row in figures["sentences"] if row["greedy"]["text"] != row["beam"]["text"]]
    assert figures["differ"] == len(differ)
    better = sum(row["beam"]["chrf"] > row["greedy"]["chrf"] for row in differ)
    assert f"{len(differ)} of 3 translations differ. Of these," in done.card
    assert f" the one by beam search is better in {better} and worse" in done.card
    assert "nrefs:1|case:mixed" in done.card
    assert done.card.count("\n| A dog") == 2
    assert r"| \| A DOG" in done.card  # Markdown in a reference is shown, and does not end the cell
    assert "Nothing is drawn at random" in done.card


def test_the_log_probability_is_the_models_own(seq2seq: Saved) -> None:
    model: Any = seq2seq.model
    greedy = search(model, seq2seq.tokenizer, seq2seq.tokenizer, SOURCES[0], "Hund", 1)
    given = seq2seq.tokenizer(SOURCES[0], return_tensors="pt")
    output = model.generate(**given, num_beams=1, do_sample=False, max_new_tokens=greedy.tokens)
    with torch.no_grad():
        loss = model(**given, labels=output[:, 1:], num_items_in_batch=1).loss
    assert greedy.tokens == output.shape[1] - 1
    assert greedy.log_probability == pytest.approx(-float(loss), abs=1e-3)


def test_two_vocabularies_are_each_of_their_side(two_vocabularies: Saved) -> None:
    target = two_vocabularies.target_tokenizer
    found = search(two_vocabularies.model, two_vocabularies.tokenizer, target, SOURCES[0], SOURCES[0], 2)
    assert found.text.strip()
    assert set(target(found.text).input_ids) & set(range(260, 275))


def test_sentences_are_spread_over_the_text() -> None:
    pairs = [(str(number), "") for number in range(10)]
    assert [source for source, _ in spread(pairs, 4)] == ["0", "2", "5", "7"]


def test_the_cache_changes_the_time_and_nothing_else(tmp_path: Path) -> None:
    sizes = {"lengths": "3,9", "hidden_size": 32, "layers": 1, "repetitions": 1}
    done = do(tmp_path, "cache", **sizes)
    assert [of["tokens"] for of in done.figures] == [3, 9]
    assert all(of["first_difference"] is None for of in done.figures)
    for of in done.figures:
        assert of["speed_up"] == pytest.approx(of["seconds_without"] / of["seconds_with"])
    assert "The tokens are the same with and without it." in done.card
    assert "threads: " in done.card


def test_other_tokens_with_the_cache_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lm: Saved, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(model: object, prompt: object, count: int, *, use_cache: bool) -> torch.Tensor:
        return torch.arange(count)[None] + torch.tensor([0, 0, int(use_cache)])[:count]

    monkeypatch.setattr(cache_exercise, "write", broken)
    with pytest.raises(SystemExit) as ended:
        do(tmp_path, "cache", model=lm.folder, lengths="3", repetitions=1)
    assert ended.value.code == 1
    assert "error: THE TOKENS DIFFER with and without it (3 tokens: from token 3 on)." in capsys.readouterr().err
    assert "THE TOKENS DIFFER" in (tmp_path / "cache" / "README.md").read_text("utf-8")
    assert first_difference(torch.tensor([[1, 2]]), torch.tensor([[1, 2]])) is None
    assert read_lengths("50, 200,1000") == [50, 200, 1000]


def test_distinct_n() -> None:
    assert distinct(["a b a b", "a"], 1) == 2 / 5
    assert distinct(["a b a b", "a"], 2) == 2 / 3
    assert math.isnan(distinct(["a"], 2))


def test_continuations_at_a_temperature(lm: Saved, tmp_path: Path) -> None:
    done = do(tmp_path, "temperature", lm.folder, "A dog", max_new_tokens=6, samples=3)
    figures = done.figures
    assert figures["temperature"] == 0.8
    assert len(figures["continuations"]) == 3
    assert figures["distinct"]["1"] == distinct([one["text"] for one in figures["continuations"]], 1)
    assert done.card.count("```text") == 1 + 3 + 1  # the prompt, the samples, the greedy one
    assert figures["greedy"]["log_probability"] > figures["mean_log_probability"]
    again = do(tmp_path, "temperature", lm.folder, "A dog", max_new_tokens=6, samples=3)
    assert again.figures["continuations"] == figures["continuations"]


def test_the_mean_log_probability_is_without_a_temperature(lm: Saved) -> None:
    model: Any = lm.model
    options: dict[str, Any] = {"samples": 1, "max_new_tokens": 5, "seed": 3}
    (one,) = continue_text(model, lm.tokenizer, "A dog", temperature=3.0, **options)
    torch.manual_seed(3)
    ids = torch.tensor([[lm.tokenizer.bos_token_id, *lm.tokenizer("A dog").input_ids]])
    output = model.generate(input_ids=ids, do_sample=True, temperature=3.0, top_p=1.0, top_k=0, max_new_tokens=5)
    labels = output.clone()
    labels[:, : ids.shape[1]] = -100
    assert one.tokens == output.shape[1] - ids.shape[1]
    with torch.no_grad():
        loss = model(output, labels=labels).loss
    assert one.log_probability == pytest.approx(-float(loss), abs=1e-5)


def test_bad_input_is_one_line(
    refused: Callable[..., str], seq2seq: Saved, lm: Saved, pair_files: dict[str, Path], tmp_path: Path
) -> None:
    def says(*words: object) -> str:
        return refused("exercise", *words, "--output_dir", tmp_path)

    assert refused("exercise", "beam").startswith("'beam' is no exercise; did you mean paperformer exercise beams?")
    assert says("beams", "./nowhere").endswith("there is no folder ./nowhere")
    assert "this command needs a translation model" in says("beams", lm.folder)
    assert "this command needs a text-generation model" in says("temperature", seq2seq.folder, "A dog")
    assert "this command needs a text-generation model" in says("cache", "--model", seq2seq.folder)
    assert says("beams", seq2seq.folder).endswith("with test sentences; give --source and --reference")
    source, reference = ("--source", pair_files["source"]), ("--reference", pair_files["reference"])
    assert "give both, or none" in says("beams", seq2seq.folder, *source)
    assert says("beams", seq2seq.folder, *source, *reference).startswith("there are 4 sentences; --sentences 20 needs")
    assert says("beams", seq2seq.folder, "--num_beams", 1).endswith("it must be at least 2")
    assert says("cache", "--lengths", "50;200").startswith("--lengths is 50;200; it must be whole numbers from 1 with")
    assert says("cache", "--hidden_size", 30).startswith("--hidden_size is 30 and --layers 4; the first must be a")
    assert "takes 64 tokens; 1,000 behind a prompt of 8 are too many" in says("cache", "--model", lm.folder)
    assert says("temperature", lm.folder, "A", "--temperature", 0) == "--temperature is 0.0; it must be greater than 0"
    assert says("temperature", lm.folder, "A", "--samples", 0) == "--samples is 0; it must be at least 1"
    assert not any(tmp_path.iterdir())
