"""`pipeline("translation")` with paperformer installed; test_remote_code.py runs it without."""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, pipeline

from paperformer import pipeline_translation
from paperformer.pipeline_translation import TranslationPipeline, load_target_tokenizer

from .conftest import Saved
from .hub_cache import cache_repository


@pytest.fixture(scope="module")
def translate(seq2seq: Saved) -> TranslationPipeline:
    # Without trust_remote_code: the installed pipeline, not the folder's copy of it.
    return pipeline("translation", model=str(seq2seq.folder), device="cpu")


def test_it_is_the_installed_pipeline_of_the_installed_model(translate: TranslationPipeline, seq2seq: Saved) -> None:
    assert type(translate) is TranslationPipeline
    assert type(translate.model) is type(seq2seq.model)
    of_objects = pipeline("translation", model=seq2seq.model, tokenizer=seq2seq.tokenizer, device="cpu")
    assert of_objects("Two men") == translate("Two men")


def test_a_text_and_a_list_of_texts(translate: TranslationPipeline) -> None:
    (one,) = translate("A dog runs")
    assert list(one) == ["translation_text"]
    assert isinstance(one["translation_text"], str)
    assert translate(["A dog runs"]) == translate(("A dog runs",)) == [one]
    assert translate([]) == []


def test_batches_give_what_single_texts_give(translate: TranslationPipeline) -> None:
    texts = ["A dog runs on the beach.", "Two men", "Ein", "", "men talk."]
    one_by_one = [translate(text)[0] for text in texts]
    assert translate(texts) == one_by_one
    assert translate(texts, batch_size=2) == one_by_one
    assert len({one["translation_text"] for one in one_by_one}) > 2  # otherwise this would prove little


@pytest.mark.parametrize("blank", ["", " ", "\n\t  "])
def test_nothing_translates_to_nothing(blank: str, translate: TranslationPipeline) -> None:
    nothing = {"translation_text": ""}
    assert translate(blank) == [nothing]
    assert translate(["Two men", blank], batch_size=2)[1] == nothing
    assert translate(blank, num_return_sequences=2) == [nothing, nothing]


def test_several_translations_of_each_text(translate: TranslationPipeline) -> None:
    options = {"num_beams": 3, "num_return_sequences": 3}
    several = translate("A dog runs", **options)
    ids = translate.model.generate(translate.tokenizer("A dog runs", return_tensors="pt").input_ids, **options)
    assert len(ids.unique(dim=0)) == 3
    texts = translate.tokenizer.batch_decode(ids, skip_special_tokens=True)
    assert several == [{"translation_text": text} for text in texts]
    batch = translate(["A dog runs", "Two men"], batch_size=2, **options)
    assert batch == [several, translate("Two men", **options)]


def test_a_generator_is_translated_as_it_goes(translate: TranslationPipeline) -> None:
    taken = []

    def texts() -> Iterator[str]:
        for text in ("A dog", "Two men"):
            taken.append(text)
            yield text

    results = iter(translate(texts()))
    assert next(results) == translate("A dog")
    assert taken == ["A dog"]


def test_generation_settings(translate: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def output_length(**kwargs: object) -> int:
        inputs = translate.preprocess("A dog runs")
        return translate.forward(inputs, **kwargs)["output_ids"].shape[-1] - 1  # without the start token

    endless = {"eos_token_id": -1}  # an id that no token has: every translation runs into its limit
    source_length = len(translate.tokenizer("A dog runs").input_ids)
    assert output_length(**endless) == 7  # the model's own generation_config
    assert output_length(max_new_tokens=3, **endless) == 3
    assert output_length(generation_config=GenerationConfig(max_new_tokens=5, decoder_start_token_id=1)) <= 5
    monkeypatch.setattr(
        translate.model, "generation_config", GenerationConfig(decoder_start_token_id=1, pad_token_id=0)
    )
    assert output_length(**endless) == source_length + 50  # nobody said how long
    monkeypatch.setattr(translate.model.config, "max_position_embeddings", 20)
    assert output_length(**endless) == 19
    assert output_length(return_dict_in_generate=True, **endless) == 19


def test_settings_given_at_construction_hold_for_every_call(seq2seq: Saved) -> None:
    short = pipeline("translation", model=seq2seq.model, tokenizer=seq2seq.tokenizer, device="cpu", max_new_tokens=2)
    assert short.forward(short.preprocess("A dog"), **short._forward_params)["output_ids"].shape[-1] == 3
    assert short("A dog") == short("A dog", max_new_tokens=2) != short("A dog", max_new_tokens=7)


def test_a_long_text_is_truncated_with_a_warning(translate: TranslationPipeline) -> None:
    long = "dog " * 100
    with pytest.warns(UserWarning, match=r"'dog dog .*\.\.\. has \d+ tokens, and the model takes 64"):
        inputs = translate.preprocess(long)
    assert inputs["input_ids"].shape == (1, 64)
    assert inputs["input_ids"][0, -1] == translate.tokenizer.eos_token_id
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translate.preprocess("dog " * 5)


@pytest.mark.parametrize("wrong", [7, None, b"bytes", {"text": "A dog"}])
def test_what_is_no_text_is_refused(wrong: object, translate: TranslationPipeline) -> None:
    with pytest.raises(TypeError, match=f"a text to translate is a str, not {type(wrong).__name__}"):
        translate(wrong)
    with pytest.raises(TypeError, match=f"a text to translate is a str, not {type(wrong).__name__}"):
        translate(["A dog", wrong])


def test_a_model_that_is_no_encoder_decoder_is_refused(lm: Saved) -> None:
    with pytest.raises(ValueError, match=r"^PaperformerForCausalLM is no encoder-decoder"):
        pipeline("translation", model=lm.model, tokenizer=lm.tokenizer, device="cpu")


def test_dropout_is_off(translate: TranslationPipeline, seq2seq: Saved) -> None:
    assert not translate.model.training
    inputs = translate.preprocess("A dog runs")
    assert torch.equal(translate.forward(inputs)["output_ids"], translate.forward(inputs)["output_ids"])


def translated(saved: Saved, text: str) -> dict[str, str]:
    """By hand, with the tokenizer of each language."""
    ids = saved.model.generate(saved.tokenizer(text, return_tensors="pt").input_ids)
    return {"translation_text": saved.target_tokenizer.decode(ids[0], skip_special_tokens=True)}


def test_a_model_with_two_vocabularies(two_vocabularies: Saved) -> None:
    translate = pipeline("translation", model=str(two_vocabularies.folder), device="cpu")
    texts = ["A dog runs", "Two men", ""]
    expected = [translated(two_vocabularies, "A dog runs"), translated(two_vocabularies, "Two men")]
    assert translate(texts, batch_size=3) == [*expected, {"translation_text": ""}]
    ids = translate.preprocess("A dog runs")["input_ids"]
    wrong = translate.tokenizer.decode(translate.model.generate(ids)[0], skip_special_tokens=True)
    assert wrong != expected[0]["translation_text"]


def test_the_second_tokenizer_may_be_given(two_vocabularies: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    given = two_vocabularies.target_tokenizer
    monkeypatch.setattr(pipeline_translation, "AutoTokenizer", None)  # nothing is looked for
    options = {"model": two_vocabularies.model, "tokenizer": two_vocabularies.tokenizer, "device": "cpu"}
    translate = pipeline("translation", **options, target_tokenizer=given)
    assert translate("Two men") == [translated(two_vocabularies, "Two men")]


def test_a_model_with_one_vocabulary_has_no_second_tokenizer(
    seq2seq: Saved, translate: TranslationPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_translation, "AutoTokenizer", None)  # nothing is looked for
    assert load_target_tokenizer(seq2seq.model) is translate.target_tokenizer is None


def test_a_second_tokenizer_that_is_missing(two_vocabularies: Saved, tmp_path: Path) -> None:
    message = (
        "the target's tokenizer cannot be loaded from target_tokenizer in '{}'; save it there, or pass it as target"
    )
    with pytest.raises(ValueError, match=message.format("")):
        pipeline("translation", model=two_vocabularies.model, tokenizer=two_vocabularies.tokenizer, device="cpu")
    folder = shutil.copytree(two_vocabularies.folder, tmp_path / "model")
    shutil.rmtree(folder / "target_tokenizer")
    with pytest.raises(ValueError, match=message.format(folder)):
        pipeline("translation", model=str(folder), device="cpu")


def test_a_pipeline_is_saved_with_both_tokenizers(two_vocabularies: Saved, tmp_path: Path) -> None:
    pipeline("translation", model=str(two_vocabularies.folder), device="cpu").save_pretrained(tmp_path)
    again = pipeline("translation", model=str(tmp_path), device="cpu")
    assert again("Two men") == [translated(two_vocabularies, "Two men")]


def test_a_model_with_one_vocabulary_is_saved_without_a_second_tokenizer(
    translate: TranslationPipeline, tmp_path: Path
) -> None:
    translate.save_pretrained(tmp_path)
    assert not (tmp_path / "target_tokenizer").exists()


def test_the_second_tokenizer_is_of_the_models_revision(
    two_vocabularies: Saved, seq2seq: Saved, tmp_path: Path
) -> None:
    cache_repository(tmp_path, "someone/pair", {"main": two_vocabularies.folder})
    older = shutil.copytree(two_vocabularies.folder, tmp_path / "older")
    seq2seq.tokenizer.save_pretrained(older / "target_tokenizer")
    cache_repository(tmp_path, "someone/pair", {"older": older})
    for revision, expected in ((None, two_vocabularies.target_tokenizer), ("older", seq2seq.tokenizer)):
        options = {"cache_dir": str(tmp_path), "local_files_only": True, "revision": revision}
        model = AutoModelForSeq2SeqLM.from_pretrained("someone/pair", **options)
        assert load_target_tokenizer(model).get_vocab() == expected.get_vocab()
    assert expected.get_vocab() != two_vocabularies.target_tokenizer.get_vocab()
