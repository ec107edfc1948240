"""Models of many languages, of transformers, translate into the one that is asked for, or say what is missing."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from starlette.testclient import TestClient
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    M2M100Tokenizer,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    PreTrainedModel,
)

from paperformer import evaluate, translate
from paperformer.cli import main
from paperformer.commands import loading
from paperformer.serving.application import make_application
from paperformer.serving.engines.loading import load_engine
from paperformer.training.console.input_error import InputError

SIZE = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 16,
    "decoder_ffn_dim": 16,
    "max_position_embeddings": 40,
    "decoder_start_token_id": 2,
    "eos_token_id": 2,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "init_std": 0.5,  # so that what is written depends on what is read
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
LETTERS = "▁abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """NLLB's, mBART's and M2M100's tokenizers and architectures, with random weights."""
    torch.manual_seed(3)
    nllb = NllbTokenizer(vocab={token: place for place, token in enumerate([*SPECIAL, *LETTERS])}, merges=[])
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *((letter, -2.0) for letter in LETTERS)]
    mbart = MBart50Tokenizer(vocab=pieces)
    models: dict[str, tuple[Any, PreTrainedModel]] = {
        "nllb": (nllb, M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(nllb), **SIZE))),
        "mbart": (mbart, MBartForConditionalGeneration(MBartConfig(vocab_size=len(mbart), **SIZE))),
    }
    m2m100 = m2m100_tokenizer(tmp_path_factory.mktemp("pieces"))
    own_size = len(m2m100) + 8  # as it was trained
    models["m2m100"] = (m2m100, M2M100ForConditionalGeneration(M2M100Config(vocab_size=own_size, **SIZE)))
    places = {}
    for name, (tokenizer, model) in models.items():
        places[name] = tmp_path_factory.mktemp(name)
        model.generation_config.forced_eos_token_id = None
        # Hundreds of languages would be all that is written.
        model.get_input_embeddings().weight.data[len(SPECIAL) + len(LETTERS) :] *= 0.3
        model.save_pretrained(places[name])
        tokenizer.save_pretrained(places[name])
    return places


def m2m100_tokenizer(folder: Path) -> M2M100Tokenizer:
    """With the languages that Facebook's has, as the special tokens that they are there."""
    # The tokenizer runs in Python, by a library that is an option of transformers.
    sentencepiece = pytest.importorskip("sentencepiece", reason="it needs sentencepiece: pip install sentencepiece")
    trained = io.BytesIO()
    lines = iter([" ".join(LETTERS[1:])] * 20)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=trained, vocab_size=31, num_threads=1, minloglevel=3
    )
    (folder / "pieces.model").write_bytes(trained.getvalue())
    (folder / "vocab.json").write_text(json.dumps({token: place for place, token in enumerate([*SPECIAL, *LETTERS])}))
    files = str(folder / "vocab.json"), str(folder / "pieces.model")
    languages = M2M100Tokenizer(*files).lang_code_to_token.values()
    return M2M100Tokenizer(*files, additional_special_tokens=list(languages))


CODES = {
    "m2m100": ("en", "de", "fr"),
    "nllb": ("eng_Latn", "deu_Latn", "fra_Latn"),
    "mbart": ("en_XX", "de_DE", "fr_XX"),
}


@pytest.mark.parametrize("name", CODES)
def test_the_languages_that_are_asked_for_mark_what_is_read_and_written(
    name: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    src_lang, tgt_lang, other = CODES[name]
    calls: list[dict[str, Any]] = []
    written: list[list[int]] = []
    generate = M2M100ForConditionalGeneration.generate

    def spy(self: Any, **arguments: Any) -> torch.Tensor:
        found: torch.Tensor = generate(self, **arguments)
        calls.append(arguments)
        written.append(found[0].tolist())
        return found

    monkeypatch.setattr(M2M100ForConditionalGeneration, "generate", spy)
    monkeypatch.setattr(MBartForConditionalGeneration, "generate", spy)
    (tmp_path / "in.txt").write_text("a dog\n")
    command = ["translate", str(folders[name]), "--input", str(tmp_path / "in.txt"), "--num_beams", "1"]
    main([*command, "--src_lang", src_lang, "--tgt_lang", tgt_lang, "--output", str(tmp_path / "out.txt")])
    read = loading.load_tokenizer(str(folders[name]))
    src_mark, tgt_mark, other_mark = (f"__{code}__" if name == "m2m100" else code for code in CODES[name])
    assert read.convert_ids_to_tokens(calls[0]["input_ids"][0])[0] == src_mark
    assert read.convert_ids_to_tokens(written[0])[:2] == ["</s>", tgt_mark]
    assert tgt_mark not in (tmp_path / "out.txt").read_text()
    translate(folders[name], ["a dog"], 1, src_lang=other, tgt_lang=src_lang)
    assert read.convert_ids_to_tokens(calls[1]["input_ids"][0])[0] == other_mark
    assert read.convert_ids_to_tokens(written[1])[:2] == ["</s>", src_mark]
    assert (tmp_path / "out.txt").read_text().count("\n") == 1


def test_what_is_missing_or_unknown_is_said_in_one_line(folders: dict[str, Path], seq2seq: Any, refused: Any) -> None:
    message = refused("translate", folders["mbart"], "--input", Path(__file__))
    assert message.startswith("the model translates into 52 languages; say which: --src_lang and --tgt_lang (af_ZA, ")
    message = refused("translate", folders["mbart"], "--input", Path(__file__), "--tgt_lang", "de_de")
    assert message == "--tgt_lang is de_de, which is none of the model's 52 languages; did you mean de_DE?"
    message = refused("translate", folders["nllb"], "--input", Path(__file__), "--tgt_lang", "german")
    assert "none of the model's 202 languages" in message
    message = refused("translate", seq2seq.folder, "--input", Path(__file__), "--tgt_lang", "de")
    assert message.startswith("the model has no languages to choose from; leave --src_lang and --tgt_lang out")
    with pytest.raises(InputError, match="are for torch; leave --engine onnx out"):
        translate(folders["nllb"], ["a"], engine="onnx", tgt_lang="deu_Latn")


def test_a_model_that_says_its_language_itself_needs_no_option(folders: dict[str, Path], tmp_path: Path) -> None:
    model = M2M100ForConditionalGeneration.from_pretrained(folders["nllb"])
    tokenizer = NllbTokenizer.from_pretrained(folders["nllb"])
    model.generation_config.forced_bos_token_id = tokenizer.convert_tokens_to_ids("deu_Latn")
    assert len(translate(model, ["a dog"], 1, tokenizer=tokenizer)) == 1


def test_a_tokenizer_that_cannot_be_without_its_library_says_which(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise ImportError("\nM2M100Tokenizer requires the SentencePiece library but it was not found")

    monkeypatch.setattr("transformers.AutoTokenizer.from_pretrained", missing)
    message = refused("translate", folders["m2m100"], "--input", Path(__file__), "--tgt_lang", "de")
    assert message == f"the tokenizer of {folders['m2m100']} needs sentencepiece: pip install sentencepiece"


def test_translations_that_are_scored_are_in_the_language_that_is_asked_for(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Any
) -> None:
    place, texts = str(folders["mbart"]), ["a dog", "cat"]
    pairs = {"src_lang": "en_XX", "tgt_lang": "de_DE"}, {"src_lang": "fr_XX", "tgt_lang": "en_XX"}
    found = [translate(place, texts, 2, **pair) for pair in pairs]
    assert found[0] != found[1]
    for name, lines in (("a.en", texts), ("a.de", found[0])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    words = ["evaluate", place, str(tmp_path / "a.en"), "--reference", str(tmp_path / "a.de")]
    words += ["--num_beams", "2", "--resamples", "0", "--format", "markdown", "--metrics", "[exact_match]"]
    for pair, is_right in zip(pairs, (True, False), strict=True):
        (score,) = evaluate(place, texts, found[0], 2, **pair, resamples=0)[-1:]
        assert (score.value == 100) == is_right
        main([*words, *(f"--{name}={code}" for name, code in pair.items()), "--against", place])
        rows = [line for line in capsys.readouterr().out.splitlines() if "xact match" in line]
        assert rows
        assert ("100.0" in rows[0]) == is_right
    assert "say which: --src_lang and --tgt_lang" in refused(*words)


@pytest.mark.parametrize("name", CODES)
def test_a_server_translates_into_what_a_request_or_the_command_says(name: str, folders: dict[str, Path]) -> None:
    src_lang, tgt_lang, other = CODES[name]
    place = str(folders[name])
    expected = {
        (source, target): translate(place, ["a dog", "cat"], 2, src_lang=source, tgt_lang=target)
        for source, target in ((src_lang, tgt_lang), (other, src_lang))
    }
    assert len({tuple(texts) for texts in expected.values()}) == 2
    with TestClient(make_application(load_engine(place), "own")) as client:

        def ask(**body: Any) -> Any:
            return client.post("/translate", json={"text": ["a dog", "cat"], "num_beams": 2, **body})

        for (source, target), texts in expected.items():
            answer = ask(src_lang=source, tgt_lang=target, scores=True).json()["translations"]
            assert [best["text"] for (best,) in answer] == texts
        assert ask().status_code == 422
        assert "'tgt_lang' is missing" in ask().text
        assert "no language of the model's; did you mean " in ask(tgt_lang=tgt_lang.upper()).text
    with TestClient(make_application(load_engine(place, src_lang=src_lang, tgt_lang=tgt_lang), "own")) as client:
        assert [best["text"] for (best,) in ask().json()["translations"]] == expected[src_lang, tgt_lang]
        answer = ask(src_lang=other, tgt_lang=src_lang).json()["translations"]
        assert [best["text"] for (best,) in answer] == expected[other, src_lang]
        assert [best["text"] for (best,) in ask().json()["translations"]] == expected[src_lang, tgt_lang]


def test_the_mark_of_the_language_counts_for_nothing_in_a_score(folders: dict[str, Path]) -> None:
    model = MBartForConditionalGeneration.from_pretrained(folders["mbart"])
    tokenizer = MBart50Tokenizer.from_pretrained(folders["mbart"])
    tokenizer.src_lang = "en_XX"
    with TestClient(make_application(load_engine(str(folders["mbart"])), "own")) as client:
        body = {"text": "a dog", "src_lang": "en_XX", "tgt_lang": "de_DE", "num_beams": 2, "num_return_sequences": 2}
        (found,) = client.post("/translate", json={**body, "max_new_tokens": 6}).json()["translations"]
    searched = model.generate(
        **tokenizer("a dog", return_tensors="pt"),
        num_beams=2,
        num_return_sequences=2,
        max_new_tokens=6,
        forced_bos_token_id=tokenizer.convert_tokens_to_ids("de_DE"),
        return_dict_in_generate=True,
        output_scores=True,
    )
    assert [each["score"] for each in found] == pytest.approx(searched.sequences_scores.tolist(), abs=1e-4)


def test_models_without_languages_are_told_so(seq2seq: Any, lm: Any, refused: Any) -> None:
    with TestClient(make_application(load_engine(str(seq2seq.folder)), "own")) as client:
        answer = client.post("/translate", json={"text": "a", "tgt_lang": "de"})
        assert (answer.status_code, "it has none; a tag is a 'prefix'" in answer.text) == (422, True)
    with pytest.raises(InputError, match=r"--src_lang or --tgt_lang is given, and .* holds a text-generation model"):
        load_engine(str(lm.folder), tgt_lang="de")
    assert "--src_lang is given, and" in refused("evaluate", lm.folder, Path(__file__), "--src_lang", "de")
