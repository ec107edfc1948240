"""Models of many languages, of transformers, translate into the one that is asked for, or say what is missing."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    MBart50Tokenizer,
    MBartConfig,
    MBartForConditionalGeneration,
    NllbTokenizer,
    PreTrainedModel,
)

from paperformer import translate
from paperformer.cli import main
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
}
LETTERS = "▁abcdefghijklmnopqrstuvwxyz"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """NLLB's and mBART's tokenizers and architectures, with random weights."""
    torch.manual_seed(3)
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    nllb = NllbTokenizer(vocab={token: place for place, token in enumerate([*special, *LETTERS])}, merges=[])
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *((letter, -2.0) for letter in LETTERS)]
    mbart = MBart50Tokenizer(vocab=pieces)
    models: dict[str, tuple[Any, PreTrainedModel]] = {
        "nllb": (nllb, M2M100ForConditionalGeneration(M2M100Config(vocab_size=len(nllb), **SIZE))),
        "mbart": (mbart, MBartForConditionalGeneration(MBartConfig(vocab_size=len(mbart), **SIZE))),
    }
    places = {}
    for name, (tokenizer, model) in models.items():
        places[name] = tmp_path_factory.mktemp(name)
        model.generation_config.forced_eos_token_id = None
        model.save_pretrained(places[name])
        tokenizer.save_pretrained(places[name])
    return places


CODES = {"nllb": ("eng_Latn", "deu_Latn", "fra_Latn"), "mbart": ("en_XX", "de_DE", "fr_XX")}


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
    tokenizer = NllbTokenizer if name == "nllb" else MBart50Tokenizer
    read = tokenizer.from_pretrained(folders[name])
    assert read.convert_ids_to_tokens(calls[0]["input_ids"][0])[0] == src_lang
    assert read.convert_ids_to_tokens(written[0])[:2] == ["</s>", tgt_lang]
    translate(folders[name], ["a dog"], 1, src_lang=other, tgt_lang=src_lang)
    assert read.convert_ids_to_tokens(calls[1]["input_ids"][0])[0] == other
    assert read.convert_ids_to_tokens(written[1])[:2] == ["</s>", src_lang]
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
