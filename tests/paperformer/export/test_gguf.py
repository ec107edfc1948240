"""GGUF: llama.cpp computes the same as torch, and makes the same tokens of a text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader
from transformers import PreTrainedTokenizerBase

import paperformer
from paperformer import train_tokenizer
from paperformer.export.coverage import OPTIONS, config_of, says
from paperformer.export.export_file import ExportFile
from paperformer.export.formats.format import Engine, Exportable
from paperformer.export.formats.gguf_format import GGUF, GPT2, describe_tokenizer, interleaved
from paperformer.export.formats.registry import FORMATS
from paperformer.export.torch_engine import TorchEngine
from paperformer.training.console.input_error import InputError

from ..conftest import TEXTS, Saved
from .conftest import random_model

DIGITS = [*TEXTS * 3, "In 2024 there were 365 dogs, and 12 cats. 1234"]
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 1, "tie_word_embeddings": False, "head_dim": 10},
    "qwen3": {"qk_norm": True, "norm_eps": 1e-3, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    "gpt2": GPT2,
}
TOKENIZERS: dict[str, dict[str, Any]] = {
    "llama": {"algorithm": "byte_bpe"},
    "qwen3": {"algorithm": "byte_bpe", "split_digits": True},
    "gpt2": {"algorithm": "characters"},
}


def exported(architecture: str, folder: Path, quantization: str = "float32") -> tuple[Exportable, TorchEngine, Engine]:
    tokenizer = train_tokenizer(DIGITS, 280, append_eos=False, show_progress=False, **TOKENIZERS[architecture])
    model = random_model(
        "lm", **MODELS[architecture] | {"vocab_size": len(tokenizer) + 3, "max_position_embeddings": 256}
    )
    facts = ExportFile.of(model.config, format="gguf", quantization=quantization, model="a model")
    exportable = Exportable(model, tokenizer, None)
    GGUF.write(exportable, folder, quantization)
    facts.write(folder)
    return exportable, TorchEngine(model, facts), GGUF.open(folder)


@pytest.mark.parametrize("architecture", MODELS)
def test_llama_cpp_computes_the_same_and_reads_text_alike(architecture: str, tmp_path: Path) -> None:
    exportable, ours, theirs = exported(architecture, tmp_path)
    inputs, outputs = [[1, 9, 30, 7], [1, 40]], [[11, 12], [13, 2, 5]]
    pairs = zip(ours.values(inputs, outputs), theirs.values(inputs, outputs), strict=True)
    assert max(np.abs(own - other).max() for own, other in pairs) < (1e-3 if architecture == "gpt2" else 1e-4)
    settings: dict[str, Any] = {"num_beams": 1, "length_penalty": 1.0, "max_new_tokens": 9}
    assert theirs.decode(inputs, **settings) == ours.decode(inputs, **settings)
    GGUF.check_text(theirs, exportable)  # type: ignore[misc]  # it is not None
    (name,) = (field.contents() for key, field in GGUFReader(tmp_path / "model.gguf").fields.items() if "archit" in key)
    assert name == architecture


def test_a_tokenizer_that_reads_otherwise_is_found(tmp_path: Path) -> None:
    exportable, _, theirs = exported("llama", tmp_path)
    other = train_tokenizer(DIGITS[:4], 280, append_eos=False, show_progress=False)
    with pytest.raises(InputError, match=r"llama.cpp makes other tokens of .*; nothing is written"):
        GGUF.check_text(theirs, replace(exportable, tokenizer=other))  # type: ignore[misc]


@pytest.mark.parametrize("quantization", ["float16", "q8_0"])
def test_rounded_weights(quantization: str, lm: Saved, tmp_path: Path) -> None:
    found = paperformer.export_model(lm.folder, tmp_path / "out", "gguf", quantization=quantization, sequences=2)
    assert found.explained > 0
    types = {tensor.tensor_type.name for tensor in GGUFReader(tmp_path / "out" / "model.gguf").tensors}
    assert types == {"float16": {"F16", "F32"}, "q8_0": {"Q8_0", "F32"}}[quantization]


def test_what_can_be_said_is_llama_qwen3_and_gpt2() -> None:
    said = {name for name in OPTIONS if says(GGUF, "lm", OPTIONS[name])}
    assert said == {
        *("norm_position pre", "norm_type rmsnorm", "norm_type layernorm", "positions rope", "positions learned"),
        *("num_key_value_heads below num_attention_heads", "head_dim of its own", "qk_norm", "hidden_act silu"),
        *("hidden_act gelu_new", "gated_mlp", "no gated_mlp", "use_bias", "no use_bias", "tie_word_embeddings off"),
    }


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match="hidden_act is 'relu', which GGUF cannot say: Llama has 'silu' there"):
        GGUF.check(config_of("lm", {"hidden_act": "relu"}))
    with pytest.raises(InputError, match="GGUF is for paperformer-lm; this is a paperformer-seq2seq"):
        GGUF.check(config_of("seq2seq", {}))


@pytest.mark.parametrize("options", [{"prefix_space": True}, {"algorithm": "unigram"}, {"normalization": "NFC"}])
def test_tokenizers_that_llama_cpp_does_not_have(options: dict[str, Any]) -> None:
    tokenizer: PreTrainedTokenizerBase = train_tokenizer(DIGITS, 310, append_eos=False, show_progress=False, **options)
    with pytest.raises(InputError, match=r"the tokenizer is none that llama.cpp does the same with"):
        describe_tokenizer(tokenizer)


def test_rows_of_queries_are_interleaved() -> None:
    import torch

    assert interleaved(torch.arange(12)[:, None], 6)[:, 0].tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


def test_formats_have_names_of_their_own() -> None:
    assert list(FORMATS) == ["ctranslate2", "onnx", "gguf"]
