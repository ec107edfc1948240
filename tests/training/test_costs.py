from collections.abc import Mapping
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from paperformer import (
    PaperformerEncoderConfig,
    PaperformerEncoderModel,
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerForMaskedLM,
    PaperformerLMConfig,
    PaperformerLMModel,
    PaperformerSeq2SeqConfig,
    PaperformerSeq2SeqModel,
)
from paperformer.training.costs import (
    Config,
    activation_bytes,
    cache_bytes,
    count_parameters,
    forward_flops,
    state_bytes,
    training_flops,
)

FAMILIES: dict[type[Config], tuple[type[PreTrainedModel], type[PreTrainedModel]]] = {
    PaperformerSeq2SeqConfig: (PaperformerForConditionalGeneration, PaperformerSeq2SeqModel),
    PaperformerLMConfig: (PaperformerForCausalLM, PaperformerLMModel),
    PaperformerEncoderConfig: (PaperformerForMaskedLM, PaperformerEncoderModel),
}
PRESETS = {name: family for family in FAMILIES for name in family.presets}


def make_model(config: Config, *, with_head: bool = True, device: str = "cpu") -> PreTrainedModel:
    with torch.device(device):
        return FAMILIES[type(config)][0 if with_head else 1](config)


# No two of these sizes are equal, and none is the product of others, so that no term can stand in for another.
@st.composite
def configurations(draw: st.DrawFn) -> Config:
    def choose(*values: Any) -> Any:
        return draw(st.sampled_from(values))

    linear = choose(False, False, True)
    family = choose(*FAMILIES)
    options: dict[str, Any] = {
        "vocab_size": choose(53, 101),
        "hidden_size": 30,
        "intermediate_size": 44,
        "num_attention_heads": 6,
        "num_key_value_heads": choose(1, 2, 3, 6),
        "head_dim": choose(None, 8),
        "hidden_act": choose("relu", "gelu", "gelu_new", "silu"),
        "gated_mlp": choose(False, True),
        "use_bias": choose(False, True),
        "norm_type": choose("layernorm", "rmsnorm"),
        "norm_position": choose("post", "pre", "peri"),
        "embedding_norm": choose(False, True),
        "qk_norm": choose(False, True),
        "linear_attention": linear,
        "attention_dropout": 0.0,
        "position_embedding_type": choose("sinusoidal", "learned", "none", *(() if linear else ("alibi", "relative"))),
        "relative_attention_num_buckets": 12,
        "max_position_embeddings": 97,
        "tie_word_embeddings": choose(False, True),
    }
    if not linear and choose(False, True):
        options |= {"head_dim": 8, "position_embedding_type": "rope"}
    if family is PaperformerSeq2SeqConfig:
        options |= {
            "encoder_layers": choose(1, 2),
            "decoder_layers": choose(1, 3),
            "share_embeddings": choose(0, 1) == 1,
            "output_bias": choose(0, 1) == 1,
        }
        if not options["share_embeddings"]:
            options |= {"source_vocab_size": choose(None, 71)}
    else:
        options |= {"num_hidden_layers": choose(1, 2)}
    if family is PaperformerEncoderConfig:
        options |= {"type_vocab_size": choose(0, 2), "pooling": choose("first", "mean")}
    return family(**options)


def part_of(name: str) -> str:
    """The part of the model that a parameter belongs to, by its name in the model."""
    for marks, part in (
        (("lm_head", "transform.", "pooler."), "output layer"),
        (("norm",), "norms"),
        ((".cross_attn.",), "cross-attention"),
        ((".self_attn.",), "attention"),
        ((".mlp.",), "feed-forward"),
        (("positions.",), "positions"),
        (("embed_tokens.", "embed_token_types."), "embeddings"),
    ):
        if any(mark in name for mark in marks):
            return part
    raise AssertionError(name)


def counted_parameters(model: PreTrainedModel) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name, parameter in model.named_parameters():  # names a tied parameter once
        counts[part_of(name)] = counts.get(part_of(name), 0) + parameter.numel()
    return counts


def without_zeros(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count}


@settings(max_examples=60, deadline=None)
@given(configurations(), st.booleans())
def test_parameters_of_every_part(config: Config, with_head: bool) -> None:
    model = make_model(config, with_head=with_head, device="meta")
    assert without_zeros(count_parameters(config, with_head=with_head)) == counted_parameters(model)


@pytest.mark.parametrize("tie_word_embeddings", [True, False])
def test_parameters_with_two_vocabularies(tie_word_embeddings: bool) -> None:
    config = PaperformerSeq2SeqConfig.from_preset(
        "transformer-tiny",
        vocab_size=53,
        source_vocab_size=71,
        share_embeddings=False,
        tie_word_embeddings=tie_word_embeddings,
    )
    assert without_zeros(count_parameters(config)) == counted_parameters(make_model(config, device="meta"))


@pytest.mark.parametrize(
    ("preset", "parameters", "of_base_model"),
    [
        ("gpt2", 124_439_808, 124_439_808),
        ("gpt2-medium", 354_823_168, 354_823_168),
        ("llama-160m", 162_417_408, 162_417_408 - 32_000 * 768),
        ("nano", 10_646_784, 10_646_784),
        ("bert-base", 109_514_298, 109_482_240),
        ("transformer-base", 63_082_496, 63_082_496),  # the paper's table 3 says 65 million
        ("transformer-big", 214_245_376, 214_245_376),  # and 213 million
        ("transformer-iwslt", 36_663_296, 36_663_296),
        ("transformer-tiny", 2_349_568, 2_349_568),
    ],
)
def test_parameters_of_presets(preset: str, parameters: int, of_base_model: int) -> None:
    config = PRESETS[preset].from_preset(preset)
    counts = count_parameters(config)
    assert sum(counts.values()) == parameters
    assert sum(count_parameters(config, with_head=False).values()) == of_base_model
    assert without_zeros(counts) == counted_parameters(make_model(config, device="meta"))


def inputs(config: Config, batch: int, length: int, source_length: int, device: str = "cpu") -> dict[str, torch.Tensor]:
    if not config.is_encoder_decoder:
        return {"input_ids": torch.ones(batch, length, dtype=torch.long, device=device)}
    return {
        "input_ids": torch.ones(batch, source_length, dtype=torch.long, device=device),
        "decoder_input_ids": torch.ones(batch, length, dtype=torch.long, device=device),
    }


def counted_flops(model: PreTrainedModel, tensors: dict[str, torch.Tensor], *, backward: bool = False) -> int:
    with FlopCounterMode(display=False) as counter:
        output = model(**tensors)
        if backward:
            output.loss.backward()
    return counter.get_total_flops()


@settings(max_examples=25, deadline=None)
@given(configurations(), st.sampled_from([2, 19, 70]), st.sampled_from([3, 67]))
def test_forward_flops(config: Config, length: int, source_length: int) -> None:
    device = "cpu" if config.linear_attention else "meta"  # it leaves autocast, which the meta device does not have
    model = make_model(config, device=device).eval()
    if not config.linear_attention:
        model.set_attn_implementation("eager")  # torch counts no fused attention here
    flops = forward_flops(config, length, source_length if config.is_encoder_decoder else 0)
    assert 2 * sum(flops.values()) == counted_flops(model, inputs(config, 2, length, source_length, device))


@pytest.mark.parametrize("preset", ["gpt2", "llama-160m", "bert-base", "transformer-base"])
def test_forward_flops_of_presets(preset: str) -> None:
    config = PRESETS[preset].from_preset(preset)
    model = make_model(config, device="meta").eval()
    flops = forward_flops(config, 512, 384 if config.is_encoder_decoder else 0)
    assert sum(flops.values()) == counted_flops(model, inputs(config, 1, 512, 384, "meta"))
    # Six FLOPs a weight and token in training, a third of them forward (Kaplan et al. 2020), but for the scores.
    if config.model_type == "paperformer-lm":
        weights = sum(count_parameters(config).values()) - count_parameters(config)["positions"]
        weights -= 0 if config.tie_word_embeddings else count_parameters(config)["embeddings"]
        assert (sum(flops.values()) - flops["scores"]) / 512 == pytest.approx(2 * weights, rel=0.002)


TINY: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "attention_dropout": 0.0,
    "dropout": 0.1,
}


def tiny(family: type[Config], num_layers: int = 2, **options: Any) -> Config:
    is_pair = family is PaperformerSeq2SeqConfig
    depth = {"encoder_layers": 2, "decoder_layers": num_layers} if is_pair else {"num_hidden_layers": num_layers}
    return family(**TINY | depth | options)


def training_inputs(config: Config, batch: int, length: int, source_length: int) -> dict[str, torch.Tensor]:
    labels = torch.randint(3, config.vocab_size, (batch, length))
    if config.is_encoder_decoder:
        return {"input_ids": torch.randint(3, config.vocab_size, (batch, source_length)), "labels": labels}
    ids = labels.clone()
    if config.model_type == "paperformer-encoder":
        hidden = torch.randperm(labels.numel())[round(0.15 * labels.numel()) :]
        labels.view(-1)[hidden] = -100
    return {"input_ids": ids, "labels": labels}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("checkpointing", [False, True])
def test_training_flops(family: type[Config], checkpointing: bool) -> None:
    config, batch, length = tiny(family, norm_position="post"), 5, 20
    source_length = 16 if config.is_encoder_decoder else 0
    model = make_model(config).train()
    model.set_attn_implementation("eager")  # torch does not count its fused attention for processors
    if checkpointing:
        model.gradient_checkpointing_enable()
    counted = counted_flops(model, training_inputs(config, batch, length, source_length), backward=True)
    flops = batch * training_flops(config, length, source_length, gradient_checkpointing=checkpointing)
    product = 2 * config.vocab_size * config.hidden_size
    predicted = batch * length
    if family is PaperformerLMConfig:  # nothing follows the last token
        predicted -= batch
        flops -= 3 * product * batch
    elif family is PaperformerEncoderConfig:
        predicted = 15
    # The loss adds the gradient of the output layer's weight up in place, and torch does not count `addmm_`.
    assert counted == pytest.approx(flops - product * predicted, rel=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("options", [{}, {"num_key_value_heads": 2}, {"attention_window": 7}])
def test_cache(family: type[Config], options: dict[str, Any]) -> None:
    config, batch, source_length = tiny(family, 3, **options), 3, 11
    if family is PaperformerEncoderConfig:
        assert cache_bytes(config, 10) == 0
        return
    model = make_model(config).eval()
    state: dict[str, Any] = {"use_cache": True}
    if config.is_encoder_decoder:
        state["encoder_outputs"] = (torch.zeros(batch, source_length, config.hidden_size),)
    ids = "decoder_input_ids" if config.is_encoder_decoder else "input_ids"
    for length in range(1, 13):
        output = model(**{ids: torch.ones(batch, 1, dtype=torch.long)}, **state)
        cache = state["past_key_values"] = output.past_key_values
        caches = [cache.self_attention_cache, cache.cross_attention_cache] if config.is_encoder_decoder else [cache]
        layers = [layer for cache in caches for layer in cache.layers if layer.is_initialized]
        held = sum(tensor.untyped_storage().nbytes() for layer in layers for tensor in (layer.keys, layer.values))
        assert held == batch * cache_bytes(config, length, source_length if config.is_encoder_decoder else 0)
    assert 2 * cache_bytes(config, 5, 4, precision="bf16") == cache_bytes(config, 5, 4)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_gradients_and_optimizer_states(family: type[Config]) -> None:
    config = tiny(family)
    model = make_model(config).train()
    model(**training_inputs(config, 2, 20, 16)).loss.backward()
    parameters = list(model.parameters())
    optimizers = {
        "adamw": torch.optim.AdamW(parameters),
        "momentum": torch.optim.SGD(parameters, momentum=0.9),
        "sgd": torch.optim.SGD(parameters),
    }
    for name, optimizer in optimizers.items():
        optimizer.step()
        states = [tensor for state in optimizer.state.values() for key, tensor in state.items() if key != "step"]
        expected = {
            "weights": sum(p.nbytes for p in parameters),
            "gradients": sum(p.grad.nbytes for p in parameters if p.grad is not None),
            "optimizer states": sum(tensor.nbytes for tensor in states if tensor is not None),
        }
        assert state_bytes(config, name) == expected  # type: ignore[arg-type]


def saved_bytes(model: PreTrainedModel, tensors: dict[str, torch.Tensor], *, autocast: bool = False) -> int:
    """What autograd saves in a forward pass, each storage once, without the parameters."""
    parameters = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, torch.Tensor] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        address = tensor.untyped_storage().data_ptr()
        if address not in parameters:
            saved[address] = tensor  # holds the storage, so that its address is not given to another
        return tensor

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=autocast),
    ):
        model(**tensors)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())


ACTIVATION_OPTIONS: dict[str, dict[str, Any]] = {
    "gpt2": {"norm_position": "pre", "hidden_act": "gelu_new", "position_embedding_type": "learned"},
    "llama": {
        "norm_type": "rmsnorm",
        "norm_position": "pre",
        "hidden_act": "silu",
        "gated_mlp": True,
        "use_bias": False,
        "position_embedding_type": "rope",
        "dropout": 0.0,
    },
    "vaswani": {"norm_position": "post", "activation_dropout": 0.1, "embedding_norm": True},
    "grouped": {"norm_position": "peri", "qk_norm": True, "num_key_value_heads": 2, "hidden_act": "gelu"},
    "alibi": {"position_embedding_type": "alibi"},
    "relative": {"position_embedding_type": "relative"},
    "linear": {"position_embedding_type": "none", "linear_attention": True},
}


def padded(ids: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(ids)
    mask[0, -1] = 0
    return mask


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("options", "attention"),
    [
        *((name, "sdpa") for name in ACTIVATION_OPTIONS),
        *((name, "eager") for name in ACTIVATION_OPTIONS if name != "linear"),  # which has no scores to hold
    ],
)
def test_activations(family: type[Config], options: str, attention: Any) -> None:
    batch, length = 3, 48
    more = {"attention_dropout": 0.1} if attention == "eager" else {}  # fused attention for processors drops nothing
    config = tiny(family, 3, **{"gated_mlp": False} | ACTIVATION_OPTIONS[options] | more)
    source_length = 40 if config.is_encoder_decoder else 0
    tensors = training_inputs(config, batch, length, source_length)
    if family is not PaperformerLMConfig or options in ("alibi", "relative"):  # else batches are full of text
        tensors["attention_mask"] = padded(tensors["input_ids"])
    if config.is_encoder_decoder:
        tensors["decoder_attention_mask"] = padded(tensors["labels"])
    model = make_model(config).train()
    if attention == "eager":
        model.set_attn_implementation("eager")
    for checkpointing in (False, True):
        if checkpointing:
            model.gradient_checkpointing_enable()
        for precision in ("fp32", "bf16"):
            memory = activation_bytes(
                config,
                batch,
                length,
                source_length,
                precision=precision,
                attention=attention,
                gradient_checkpointing=checkpointing,
                fused=False,
            )
            counted = saved_bytes(model, tensors, autocast=precision != "fp32")
            assert memory.kept == pytest.approx(counted, rel=0.1 if options == "grouped" else 0.07)
            assert (memory.recomputed > 0) == checkpointing


@pytest.mark.parametrize("family", FAMILIES)
def test_one_block_is_recomputed(family: type[Config]) -> None:
    def saved(num_layers: int) -> int:
        config = tiny(family, num_layers)
        return saved_bytes(make_model(config).train(), training_inputs(config, 3, 48, 40))

    memory = activation_bytes(tiny(family), 3, 48, 40, gradient_checkpointing=True, fused=False)
    assert memory.recomputed == pytest.approx(saved(3) - saved(2), rel=0.1)


def test_what_changes_activations() -> None:
    """Fused operations (which tests on a processor cannot count) save less, and only scores are quadratic in T."""
    config = tiny(PaperformerLMConfig)
    assert activation_bytes(config, 1, 64).kept < activation_bytes(config, 1, 64, fused=False).kept

    def growth(attention: Any) -> int:
        kept = [activation_bytes(config, 1, length, attention=attention).kept for length in (64, 128, 192)]
        return kept[2] - 2 * kept[1] + kept[0]

    assert growth("sdpa") == 0
    assert (
        growth("eager") == 2 * 4 * config.num_attention_heads * 2 * 64**2
    )  # layers, float32, heads, second difference
