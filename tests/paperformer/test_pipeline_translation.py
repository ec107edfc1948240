"""`pipeline("translation")` with paperformer installed; test_remote_code.py runs it without."""

import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import AutoModelForSeq2SeqLM, GenerationConfig, pipeline
from transformers.pipelines.pt_utils import KeyDataset

from paperformer import (
    PaperformerForConditionalGeneration,
    PaperformerSeq2SeqConfig,
    pipeline_translation,
    train_tokenizer,
)
from paperformer.pipeline_translation import TranslationPipeline, load_target_tokenizer

from .conftest import SIZE, TEXTS, Saved
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


def lengths(translate: TranslationPipeline, text: str, **options: object) -> list[int]:
    """How many tokens the translation of each piece of a text has, without the start token."""
    (text_of_outputs,) = translate.forward(translate.preprocess(text), **options)["texts"]
    return [len(several[0]["ids"]) - 1 for several in text_of_outputs["pieces"]]


def test_generation_settings(translate: TranslationPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    def output_length(**options: object) -> int:
        (length,) = lengths(translate, "A dog runs", **options)
        return length

    endless = {"eos_token_id": -1}  # an id that no token has: every translation runs into its limit
    config = GenerationConfig(eos_token_id=-1, decoder_start_token_id=1)
    source_length = len(translate.tokenizer("A dog runs").input_ids)
    assert output_length(**endless) == 7  # the model's own generation_config
    assert output_length(max_new_tokens=3, **endless) == 3
    assert output_length(max_length=4, **endless) == 3  # which counts the start token
    assert output_length(generation_config=GenerationConfig(**config.to_diff_dict() | {"max_new_tokens": 5})) == 5
    assert output_length(generation_config=GenerationConfig(**config.to_diff_dict() | {"max_length": 5})) == 4
    monkeypatch.setattr(
        translate.model, "generation_config", GenerationConfig(decoder_start_token_id=1, pad_token_id=0)
    )
    assert output_length(**endless) == source_length + 50  # nobody said how long
    assert output_length(generation_config=config) == source_length + 50
    monkeypatch.setattr(translate.model.config, "max_position_embeddings", 20)
    assert output_length(**endless) == 19
    assert output_length(return_dict_in_generate=True, **endless) == 19


def test_settings_given_at_construction_hold_for_every_call(seq2seq: Saved) -> None:
    short = pipeline("translation", model=seq2seq.model, tokenizer=seq2seq.tokenizer, device="cpu", max_new_tokens=2)
    assert lengths(short, "A dog", **short._forward_params) == [2]
    assert short("A dog") == short("A dog", max_new_tokens=2) != short("A dog", max_new_tokens=7)


PARAGRAPHS = " A dog runs. Two men talk!\n\n  - Ein Hund\r\n\t\nDr. Strand reden.\n"


@pytest.mark.parametrize("batch_size", [1, 3])
def test_paragraphs_are_translated_by_sentences_and_put_together_again(
    batch_size: int, translate: TranslationPipeline
) -> None:
    sentences = ["A dog runs.", "Two men talk!", "- Ein Hund", "Dr. Strand reden."]
    one, two, three, four = (translate(sentence)[0]["translation_text"] for sentence in sentences)
    expected = {"translation_text": f" {one} {two}\n\n  {three}\r\n\t\n{four}\n"}
    assert translate(PARAGRAPHS, batch_size=batch_size) == [expected]
    assert translate([PARAGRAPHS, "", "A dog runs."], batch_size=batch_size)[::2] == [
        expected,
        {"translation_text": one},
    ]


def test_lines_may_be_translated_as_they_are(translate: TranslationPipeline) -> None:
    whole = translate.preprocess(PARAGRAPHS, split_sentences=False)["texts"][0]
    first, *_ = translate.tokenizer.batch_decode(whole["ids"], skip_special_tokens=True)
    assert (first, len(whole["ids"])) == ("A dog runs. Two men talk!", 3)


def test_a_sentence_that_is_too_long_is_translated_in_parts(translate: TranslationPipeline) -> None:
    long = "dog, " * 50 + "end"
    (parts,) = translate.preprocess(long)["texts"]
    assert len(parts["ids"]) > 2
    assert max(map(len, parts["ids"])) <= 64
    assert all(ids[-1] == translate.tokenizer.eos_token_id for ids in parts["ids"])
    texts = translate.tokenizer.batch_decode(parts["ids"], skip_special_tokens=True)
    assert "".join(map("".join, zip(texts, parts["gaps"][1:], strict=True))) == long
    (cut,) = translate.preprocess(long, truncation=True)["texts"]
    assert [len(ids) for ids in cut["ids"]] == [64]
    assert len(lengths(translate, long)) == len(parts["ids"])


def test_a_translation_that_ends_at_the_models_limit_is_told(translate: TranslationPipeline) -> None:
    with pytest.warns(UserWarning, match=r"^'A dog'\.\.\.: the translation of a sentence is as long as the model's"):
        translate("A dog", eos_token_id=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translate("A dog", eos_token_id=-1, max_new_tokens=3)  # as the caller wanted it
        translate("A dog", eos_token_id=-1, max_length=3)
        options = {"num_beams": 1, "return_tensors": True}
        first = translate("A dog", max_new_tokens=1, **options)[0]["translation_token_ids"][-1]
        translate("A dog", eos_token_id=int(first), **options)


@pytest.mark.parametrize("options", [{"num_beams": 4}, {"num_beams": 3, "length_penalty": 0.0}, {"num_beams": 1}])
def test_scores_are_those_of_the_search(options: dict[str, float], translate: TranslationPipeline) -> None:
    beams = int(options["num_beams"])
    several = translate("A dog runs", num_return_sequences=beams, return_scores=True, **options)
    source = translate.tokenizer("A dog runs", return_tensors="pt")
    output = translate.model.generate(
        **source, num_return_sequences=beams, return_dict_in_generate=True, output_scores=True, **options
    )
    if beams > 1:
        expected = output.sequences_scores
    else:
        expected = translate.model.compute_transition_scores(output.sequences, output.scores, normalize_logits=True)
        expected = expected.mean(-1)
    assert [found["score"] for found in several] == pytest.approx(expected.tolist(), abs=1e-5)
    assert several == sorted(several, key=lambda found: -found["score"])


def test_the_score_of_a_text_is_that_of_its_sentences(translate: TranslationPipeline) -> None:
    options = {"return_scores": True, "num_return_sequences": 2}
    texts = ["A dog runs.", "Two men"]
    alone = translate(texts, **options)
    counts = [[lengths(translate, text)[0]] * 2 for text in texts]
    assert {count for pair in counts for count in pair} == {7}  # of equal length, a mean of both
    together = translate(" ".join(texts), batch_size=2, **options)
    for place in (0, 1):
        expected = (alone[0][place]["score"] + alone[1][place]["score"]) / 2
        assert together[place]["score"] == pytest.approx(expected, abs=1e-5)
    assert translate("", **options)[0] == {"translation_text": "", "score": 0.0}


def test_token_ids(translate: TranslationPipeline) -> None:
    (found,) = translate("A dog. Two men", return_tensors=True)
    assert list(found) == ["translation_token_ids"]
    expected = [
        translate.model.generate(translate.tokenizer(text, return_tensors="pt").input_ids)[0].tolist()
        for text in ("A dog.", "Two men")
    ]
    assert found["translation_token_ids"].tolist() == expected[0] + expected[1]
    assert translate("", return_tensors=True)[0]["translation_token_ids"].tolist() == []


def test_collections_of_other_kinds(translate: TranslationPipeline) -> None:
    texts = ["A dog", "Two men"]
    expected = translate(texts)
    table = Dataset.from_dict({"text": texts})
    assert translate(table["text"], batch_size=2) == translate(np.array(texts)) == expected
    as_they_come = [[one] for one in expected]
    assert list(translate(KeyDataset(table, "text"), batch_size=2)) == as_they_come
    assert list(translate(map(str, texts))) == list(translate(iter(texts), batch_size=2)) == as_they_come


class TestLanguageTags:
    @pytest.fixture
    def translate(self) -> TranslationPipeline:
        tokenizer = train_tokenizer(TEXTS * 3, 300, append_eos=True, user_symbols=["<2de>", "<2pt-BR>", "<mark>"])
        config = PaperformerSeq2SeqConfig(encoder_layers=1, decoder_layers=1, vocab_size=len(tokenizer), **SIZE)
        return TranslationPipeline(PaperformerForConditionalGeneration(config).eval(), tokenizer, device="cpu")

    def pieces(self, translate: TranslationPipeline, text: str, **options: str) -> list[str]:
        return translate.tokenizer.batch_decode(
            [ids[:-1] for ids in translate.preprocess(text, **options)["texts"][0]["ids"]]
        )

    def test_the_tag_is_put_before_every_sentence(self, translate: TranslationPipeline) -> None:
        expected = ["<2pt-BR>A dog.", "<2pt-BR>Two men"]
        text = "A dog. Two men"
        assert self.pieces(translate, text, tgt_lang="pt-BR") == expected
        assert self.pieces(translate, text, src_lang="en", tgt_lang="pt-BR") == expected
        assert self.pieces(translate, f"<2pt-BR>{text}") == expected  # as one does without a pipeline
        assert self.pieces(translate, text) == ["A dog.", "Two men"]
        tag = translate.tokenizer.convert_tokens_to_ids("<2pt-BR>")
        ids = translate.preprocess(text, tgt_lang="pt-BR")["texts"][0]["ids"]
        assert [piece[0] for piece in ids] == [tag, tag]

    def test_a_language_without_a_tag_is_refused(self, translate: TranslationPipeline) -> None:
        with pytest.raises(ValueError, match=r"^tgt_lang is 'fr'; the model translates into de, pt-BR$"):
            translate("A dog", tgt_lang="fr")

    def test_tags_of_a_model_that_has_none_are_refused(self, seq2seq: Saved) -> None:
        other = TranslationPipeline(seq2seq.model, seq2seq.tokenizer, device="cpu")
        for option in ({"tgt_lang": "de"}, {"src_lang": "en"}):
            with pytest.raises(ValueError, match=r"^the model has no language tags, and translates into one language"):
                other("A dog", **option)
        assert self.pieces(other, "<2de>A dog") == ["<2de>A dog"]  # a text like any other


def test_half_of_a_surrogate_pair_is_refused(translate: TranslationPipeline) -> None:
    with pytest.raises(ValueError, match=r"^'A \\ud800 dog'\.\.\. has half of a surrogate pair"):
        translate("A \ud800 dog")


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
    assert translate.forward(inputs, return_scores=True) == translate.forward(inputs, return_scores=True)


def translated(saved: Saved, text: str) -> dict[str, str]:
    """By hand, with the tokenizer of each language."""
    ids = saved.model.generate(saved.tokenizer(text, return_tensors="pt").input_ids)
    return {"translation_text": saved.target_tokenizer.decode(ids[0], skip_special_tokens=True)}


def test_a_model_with_two_vocabularies(two_vocabularies: Saved) -> None:
    translate = pipeline("translation", model=str(two_vocabularies.folder), device="cpu")
    texts = ["A dog runs", "Two men", ""]
    expected = [translated(two_vocabularies, "A dog runs"), translated(two_vocabularies, "Two men")]
    assert translate(texts, batch_size=3) == [*expected, {"translation_text": ""}]
    ids = translate.preprocess("A dog runs")["texts"][0]["ids"]
    wrong = translate.tokenizer.decode(translate.model.generate(torch.tensor(ids))[0], skip_special_tokens=True)
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
