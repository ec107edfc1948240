from typing import Any

import pytest
import torch

from paperformer import PaperformerEncoderConfig
from paperformer.modeling.families import Config
from paperformer.training.costs.memory import cache_bytes, state_bytes

from .conftest import FAMILIES, make_model, tiny, training_inputs


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
