"""CTranslate2 (Klein et al. 2020): translation, language models and encoders on CPUs and GPUs, from C++ and Python."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from .ctranslate2_engine import CTranslate2Engine
from .format import Exportable, Format, Refusal, is_family

TORCH_OR_ONNX = "export it to onnx, or use it with torch"


def _write(exportable: Exportable, folder: Path, quantization: str) -> None:
    from ctranslate2.converters import Converter

    class PaperformerConverter(Converter):
        def _load(self) -> Any:
            return _spec_with_vocabularies(exportable)

    PaperformerConverter().convert(str(folder), quantization=quantization, force=True)


def _spec_with_vocabularies(exportable: Exportable) -> Any:
    from .ctranslate2_spec import build_spec

    config = exportable.config
    spec = build_spec(exportable.model)
    tokens = tokens_of(exportable.output_tokenizer, config.vocab_size)
    settings = spec.config
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    settings.eos_token = tokens[ends[0]]
    settings.bos_token = tokens[config.bos_token_id if config.bos_token_id is not None else ends[0]]
    settings.unk_token = exportable.output_tokenizer.unk_token or settings.eos_token
    if not config.is_encoder_decoder:
        spec.register_vocabulary(tokens)
        return spec
    spec.register_source_vocabulary(tokens_of(exportable.tokenizer, config.encoder_vocab_size))
    spec.register_target_vocabulary(tokens)
    settings.decoder_start_token = tokens[config.decoder_start_token_id]
    settings.add_source_bos = settings.add_source_eos = False  # the tokenizer has put them where they belong
    return spec


def tokens_of(tokenizer: PreTrainedTokenizerBase, count: int) -> list[str]:
    """The vocabulary in the order of its ids, (V,), with a name of its own for each row that no token has."""
    names: Sequence[str | None] = tokenizer.convert_ids_to_tokens(list(range(min(count, len(tokenizer)))))
    taken = {name for name in names if name}
    tokens: dict[str, None] = {}  # in their order
    for index in range(count):
        name = (names[index] if index < len(names) else None) or ""
        if not name or name in tokens:
            name = f"<unused {index}>"
            while name in taken:
                name += ">"
        tokens[name] = None
    return list(tokens)


def _round(quantization: str, weight: torch.Tensor) -> torch.Tensor:
    """What is left of a weight: whole numbers of 1/127 of the largest of its row, of 1/1024 of its largest, or half."""
    if quantization in ("float16", "bfloat16"):
        return weight.to(getattr(torch, quantization)).float()
    if weight.dim() < 2:
        return weight
    if quantization == "int16":
        scale = 2**10 / weight.abs().max().clamp(min=1e-30)
    else:
        scale = 127 / weight.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    return (weight * scale).round() / scale


REFUSALS = (
    Refusal(
        "position_embedding_type",
        lambda config: config.position_embedding_type == "alibi" and not is_family(config, "lm"),
        "its encoders have no linear biases",
        TORCH_OR_ONNX,
    ),
    Refusal(
        "position_embedding_type",
        lambda config: config.position_embedding_type == "relative" and is_family(config, "lm"),
        "it miscounts the distances within a prompt",
        TORCH_OR_ONNX,
    ),
    Refusal(
        "rope_parameters",
        lambda config: (config.rope_parameters or {}).get("rope_type") in ("dynamic", "longrope"),
        "its frequencies do not change with the length of a text",
        TORCH_OR_ONNX,
    ),
    Refusal(
        "qk_norm",
        lambda config: config.qk_norm and is_family(config, "seq2seq") and config.num_attention_heads > 1,
        "its attention to the source normalises the queries of all heads together, not head by head",
        f"{TORCH_OR_ONNX}, or train with qk_norm false",
    ),
    Refusal(
        "attention_window",
        lambda config: config.attention_window is not None,
        "its window is another one for prompts and in encoders",
        TORCH_OR_ONNX,
    ),
    Refusal("attention_stride", lambda config: config.attention_stride is not None, "it has none", TORCH_OR_ONNX),
    Refusal("linear_attention", lambda config: config.linear_attention, "its attention is softmax", TORCH_OR_ONNX),
    Refusal(
        "eos_token_id",
        lambda config: config.eos_token_id is None,
        "it has to know where a text ends",
        "set it in config.json",
    ),
)

CTRANSLATE2 = Format(
    name="ctranslate2",
    title="CTranslate2",
    packages=("ctranslate2",),
    extra="ctranslate2",
    families={"seq2seq": ({},), "lm": ({},), "encoder": ({},)},
    quantizations=("float32", "int8", "int8_float32", "int16", "float16", "bfloat16"),
    rounding=_round,
    refusals=REFUSALS,
    write=_write,
    open=CTranslate2Engine,
)
