"""GGUF, the format of llama.cpp: language models like Llama, Qwen 3 and GPT-2, with their tokenizers.

Which of the three a model is follows from its options: GPT-2 has learned positions and LayerNorm; Llama has RoPE,
RMSNorm and a gated feed-forward layer; Qwen 3 is Llama with normalised queries and keys.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from ...training.console.input_error import InputError
from .ctranslate2_format import tokens_of
from .format import Engine, Exportable, Format, Refusal
from .gguf_engine import MODEL_FILE, LlamaCppEngine

TORCH_OR_ONNX = "export it to onnx, or use it with torch"

GPT2: dict[str, Any] = {
    "norm_type": "layernorm",
    "position_embedding_type": "learned",
    "gated_mlp": False,
    "hidden_act": "gelu_new",
    "use_bias": True,
}
"""What makes GPT-2 of our defaults, which are Llama's."""

_PRE_TOKENIZERS = {
    json.dumps({"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}): "gpt-2",
}
"""How llama.cpp calls the ways in which text is divided before byte-level BPE."""


def _is_gpt2(config: Any) -> bool:
    return bool(config.position_embedding_type == "learned")


def _architecture(config: Any) -> str:
    return "gpt2" if _is_gpt2(config) else "qwen3" if config.qk_norm else "llama"


def _write(exportable: Exportable, folder: Path, quantization: str) -> None:
    import gguf

    config, tokenizer = exportable.config, exportable.tokenizer
    folder.mkdir(parents=True, exist_ok=True)
    writer = gguf.GGUFWriter(str(folder / MODEL_FILE), _architecture(config))
    try:
        _add_facts(writer, config)
        _add_tokenizer(writer, gguf, tokenizer, config)
        for name, weight in _weights(exportable.model):
            values = weight.detach().float().numpy()
            kind = _type_of(gguf, quantization, values)
            if kind == gguf.GGMLQuantizationType.F32:
                writer.add_tensor(name, np.ascontiguousarray(values, dtype=np.float32))
            else:
                writer.add_tensor(name, gguf.quants.quantize(values, kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _add_facts(writer: Any, config: Any) -> None:
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_head_count(config.num_attention_heads)
    writer.add_vocab_size(config.vocab_size)
    if _is_gpt2(config):
        writer.add_layer_norm_eps(config.norm_eps)
        return
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])


def _add_tokenizer(writer: Any, gguf: Any, tokenizer: PreTrainedTokenizerBase, config: Any) -> None:
    """The vocabulary with what each token is, and how text becomes tokens."""
    kind, pre, merges = describe_tokenizer(tokenizer)
    tokens = tokens_of(tokenizer, config.vocab_size)
    special = {token.content: token.special for token in tokenizer.added_tokens_decoder.values()}
    types = []
    for index, token in enumerate(tokens):
        name = gguf.TokenType.NORMAL
        if index >= len(tokenizer):
            name = gguf.TokenType.UNUSED
        elif token in special:
            name = gguf.TokenType.CONTROL if special[token] else gguf.TokenType.USER_DEFINED
        elif kind == "llama" and len(token) == 6 and token.startswith("<0x"):
            name = gguf.TokenType.BYTE
        types.append(name)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token.replace(" ", "\u2581") if kind == "llama" else token for token in tokens])
    writer.add_token_types(types)
    if kind == "llama":
        writer.add_token_scores([0.0] * len(tokens))
        writer.add_add_space_prefix(False)
        writer.add_unk_token_id(tokenizer.unk_token_id or 0)
    else:
        writer.add_token_merges(merges)
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    writer.add_eos_token_id(ends[0])
    if config.bos_token_id is not None:
        writer.add_bos_token_id(config.bos_token_id)
    writer.add_add_bos_token(config.bos_token_id is not None)
    writer.add_add_eos_token(False)
    if config.pad_token_id is not None:
        writer.add_pad_token_id(config.pad_token_id)


def describe_tokenizer(tokenizer: PreTrainedTokenizerBase) -> tuple[str, str, list[str]]:
    """How llama.cpp calls an algorithm and the division of text before it, and the merges.

    Raises:
        InputError: if it knows none that does the same.
    """
    backend: Any = tokenizer
    parts = json.loads(backend.backend_tokenizer.to_str())
    model, pre = parts["model"], parts["pre_tokenizer"]
    divided = "gpt-2"
    if pre is not None and pre["type"] == "Sequence" and len(pre["pretokenizers"]) == 2:
        digits, pre = pre["pretokenizers"]
        divided = "smollm" if digits == {"type": "Digits", "individual_digits": True} else ""
    if model["type"] == "BPE" and parts["normalizer"] is None and divided:
        if pre is not None and json.dumps(pre) in _PRE_TOKENIZERS:
            merges = [pair if isinstance(pair, str) else " ".join(pair) for pair in model["merges"]]
            return "gpt2", divided, merges
        if pre is None and not model["merges"] and model["byte_fallback"] and "\u2581" not in model["vocab"]:
            return "llama", "default", []
    raise InputError(
        "the tokenizer is none that llama.cpp does the same with; it knows byte_bpe without prefix_space and "
        f"normalization, and characters; {TORCH_OR_ONNX}, or train with tokenizer.algorithm byte_bpe"
    )


def _weights(model: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Every tensor under llama.cpp's names."""
    config, body = model.config, model.model
    yield "token_embd.weight", body.embed_tokens.weight
    if _is_gpt2(config):
        yield "position_embd.weight", body.positions.table.weight
    for index, layer in enumerate(body.layers):
        yield from ((f"blk.{index}.{name}", weight) for name, weight in _block_weights(layer, config))
    yield from _both("output_norm", body.norm)
    if not config.tie_word_embeddings:
        yield "output.weight", model.lm_head.weight


def _block_weights(layer: Any, config: Any) -> Iterator[tuple[str, torch.Tensor]]:
    attention, mlp = layer.self_attn, layer.mlp
    yield from _both("attn_norm", layer.self_attn_residual.norm)
    yield from _both("ffn_norm", layer.mlp_residual.norm)
    yield from _both("attn_output", attention.o_proj)
    yield from _both("ffn_up", mlp.up_proj)
    yield from _both("ffn_down", mlp.down_proj)
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    if _is_gpt2(config):
        yield "attn_qkv.weight", torch.cat([each.weight for each in projections])
        yield "attn_qkv.bias", torch.cat([each.bias for each in projections])
        return
    yield from _both("ffn_gate", mlp.gate_proj)
    yield from _both("attn_v", attention.v_proj)
    for kind, projection in (("q", attention.q_proj), ("k", attention.k_proj)):
        weight = projection.weight
        yield f"attn_{kind}.weight", weight if config.qk_norm else interleaved(weight, config.head_dim)
    if config.qk_norm:
        yield "attn_q_norm.weight", attention.q_norm.weight
        yield "attn_k_norm.weight", attention.k_norm.weight


def interleaved(weight: torch.Tensor, head_dim: int) -> torch.Tensor:
    """The rows of queries or keys with the pairs that RoPE turns side by side, where ours are half a head apart."""
    return weight.unflatten(0, (-1, 2, head_dim // 2)).transpose(1, 2).flatten(0, 2)


def _both(name: str, module: Any) -> Iterator[tuple[str, torch.Tensor]]:
    yield f"{name}.weight", module.weight
    if getattr(module, "bias", None) is not None:
        yield f"{name}.bias", module.bias


def _type_of(gguf: Any, quantization: str, values: np.ndarray) -> Any:
    """How a tensor is stored: vectors, and rows that do not divide into blocks, always as they are."""
    types = gguf.GGMLQuantizationType
    if quantization == "float32" or values.ndim < 2:
        return types.F32
    if quantization == "q8_0":
        return types.Q8_0 if values.shape[-1] % 32 == 0 else types.F32
    return {"float16": types.F16, "bfloat16": types.BF16}[quantization]


def _round(quantization: str, weight: torch.Tensor) -> torch.Tensor:
    """What is left of a matrix: half precision, or whole numbers of 1/127 of the largest in 32 neighbours."""
    if weight.dim() < 2:
        return weight
    if quantization == "q8_0":
        if weight.shape[-1] % 32:
            return weight
        blocks = weight.unflatten(-1, (-1, 32))
        scale = 127 / blocks.abs().amax(-1, keepdim=True).clamp(min=1e-30)
        return ((blocks * scale).round() / scale).flatten(-2)
    return weight.to(getattr(torch, quantization)).float()


def _only(field: str, llama: Any, gpt2: Any, remedy: str = TORCH_OR_ONNX) -> Refusal:
    """An option that each of the architectures has in one value."""
    return Refusal(
        field,
        lambda config: getattr(config, field) != (gpt2 if _is_gpt2(config) else llama),
        f"Llama has {llama!r} there, and GPT-2 {gpt2!r}",
        remedy,
    )


REFUSALS = (
    Refusal(
        "position_embedding_type",
        lambda config: config.position_embedding_type not in ("rope", "learned"),
        "Llama has rope, and GPT-2 learned",
        TORCH_OR_ONNX,
    ),
    Refusal(
        "rope_parameters",
        lambda config: (config.rope_parameters or {}).get("rope_type", "default") != "default",
        "its scalings are not written yet",
        TORCH_OR_ONNX,
    ),
    _only("norm_type", "rmsnorm", "layernorm"),
    _only("norm_position", "pre", "pre"),
    _only("embedding_norm", False, False),
    _only("scale_embedding", False, False),
    _only("gated_mlp", True, False),
    _only("hidden_act", "silu", "gelu_new"),
    _only("use_bias", False, True),
    _only("attention_window", None, None),
    _only("attention_stride", None, None),
    _only("linear_attention", False, False),
    Refusal("qk_norm", lambda config: config.qk_norm and _is_gpt2(config), "GPT-2 has none", TORCH_OR_ONNX),
    Refusal(
        "num_key_value_heads",
        lambda config: _is_gpt2(config) and config.num_key_value_heads != config.num_attention_heads,
        "GPT-2's heads do not share keys and values",
        TORCH_OR_ONNX,
    ),
    Refusal(
        "head_dim",
        lambda config: _is_gpt2(config) and config.head_dim * config.num_attention_heads != config.hidden_size,
        "GPT-2's heads divide hidden_size",
        TORCH_OR_ONNX,
    ),
    Refusal("eos_token_id", lambda config: config.eos_token_id is None, "it has to know where a text ends", "set it"),
)


def _check_text(engine: Engine, exportable: Exportable) -> None:
    reader: Any = engine
    reader.check_tokenizer(exportable)


GGUF = Format(
    name="gguf",
    title="GGUF",
    packages=("gguf", "xllamacpp"),
    extra="gguf",
    families={"lm": ({}, GPT2)},
    quantizations=("float32", "float16", "bfloat16", "q8_0"),
    rounding=_round,
    refusals=REFUSALS,
    tolerance=1e-3,  # llama.cpp looks GELU up in a table of half precision
    compared_tokens=12,
    check_text=_check_text,
    write=_write,
    open=LlamaCppEngine,
)
