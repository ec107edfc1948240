import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from paperformer import PaperformerEncoderConfig, PaperformerLMConfig
from paperformer.modeling.families import Config
from paperformer.training.costs.flops import forward_flops, training_flops
from paperformer.training.costs.parameters import count_parameters

from ...examples import examples
from .conftest import FAMILIES, PRESETS, configurations, make_model, tiny, training_inputs


def inputs(config: Config, batch: int, length: int, source_length: int, device: str = "cpu") -> dict[str, torch.Tensor]:
    if not config.is_encoder_decoder:
        return {"input_ids": torch.ones(batch, length, dtype=torch.long, device=device)}
    return {
        "input_ids": torch.ones(batch, source_length, dtype=torch.long, device=device),
        "decoder_input_ids": torch.ones(batch, length, dtype=torch.long, device=device),
    }


def counted_flops(model: PreTrainedModel, tensors: dict[str, torch.Tensor], *, backward: bool = False) -> int:
    with FlopCounterMode(display=False) as counter:
        output = model(**tensors, return_logits=not backward)
        if backward:
            output.loss.backward()
    return counter.get_total_flops()


@settings(max_examples=examples(25))
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
