from collections.abc import Callable
from pathlib import Path

import pytest

from paperformer.training.data import tokenizers as run_tokenizers
from paperformer.training.data.splits import cache_folder, pair_splits
from paperformer.training.data.tokenizers import (
    TokenizerNeeds,
    Tokenizers,
    load_tokenizers,
    padded_size,
    trained_tokenizers,
)
from paperformer.training.recipe.data import ParallelData
from paperformer.training.recipe.recipe import Recipe

MakeRecipe = Callable[..., Recipe[ParallelData]]


def trained(recipe: Recipe[ParallelData]) -> Tokenizers:
    return trained_tokenizers(
        recipe, pair_splits(recipe).train, cache_folder(recipe), TokenizerNeeds(append_eos=True, max_length=40)
    )


def test_they_are_trained_once_for_a_text_and_its_options(
    seq2seq_recipe: MakeRecipe, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = trained(seq2seq_recipe())
    (tmp_path / "other.tsv").write_text("Something else.\tEtwas anderes.\n" * 9)
    of_other_text = trained(seq2seq_recipe(data__train=tmp_path / "other.tsv"))
    assert of_other_text.source.get_vocab() != first.source.get_vocab()
    assert len(trained(seq2seq_recipe(tokenizer__vocab_size=280)).source) == 280
    monkeypatch.setattr(run_tokenizers, "train_tokenizer", None)
    again = trained(seq2seq_recipe(tokenizer__bpe_dropout=0.1))  # which concerns training batches only
    assert again.source.get_vocab() == first.source.get_vocab()
    assert again.source.model_max_length == 40


def test_joint_and_separate_vocabularies(seq2seq_recipe: MakeRecipe, tmp_path: Path) -> None:
    joint = trained(seq2seq_recipe())
    assert not joint.are_separate
    separate = trained(seq2seq_recipe(tokenizer__separate="true", model__share_embeddings="false"))
    assert separate.are_separate
    assert "Ġcat" in separate.source.get_vocab().keys() - separate.target.get_vocab().keys()
    assert separate.target.get_vocab() != joint.target.get_vocab()
    separate.save(tmp_path / "saved")
    loaded = load_tokenizers(tmp_path / "saved")
    assert loaded.are_separate
    assert [tokenizer.get_vocab() for tokenizer in loaded] == [tokenizer.get_vocab() for tokenizer in separate]


def test_a_text_too_small_for_the_vocabulary_is_said_in_a_line(
    seq2seq_recipe: MakeRecipe, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.tsv").write_text("Hm.\tHm.\n")
    trained(seq2seq_recipe(data__train=tmp_path / "small.tsv"))
    assert "note: the vocabulary has 26" in capsys.readouterr().err


def test_a_stream_trains_the_same_and_leaves_nothing(seq2seq_recipe: MakeRecipe) -> None:
    recipe = seq2seq_recipe(data__streaming="true")
    streamed = trained(recipe)
    assert not list(cache_folder(recipe).glob("tokenizer-*"))
    assert streamed.source.get_vocab() == trained(seq2seq_recipe()).source.get_vocab()


@pytest.mark.parametrize(("multiple", "size"), [(1, 300), (8, 304), (64, 320)])
def test_embeddings_have_rows_up_to_a_multiple(seq2seq_recipe: MakeRecipe, multiple: int, size: int) -> None:
    assert padded_size(trained(seq2seq_recipe()).source, multiple) == size
