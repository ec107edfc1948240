from typing import Any

import pytest
import torch
from torch import nn

from paperformer import PaperformerForCausalLM, PaperformerLMConfig
from paperformer.training.engine.ema import ExponentialMovingAverage


def make_model(**options: Any) -> nn.Module:
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 8, "intermediate_size": 12, "num_attention_heads": 2}
    return PaperformerForCausalLM(PaperformerLMConfig(**sizes, num_hidden_layers=1, **options)).eval()


@torch.no_grad()
def move(model: nn.Module) -> None:
    """What an optimizer does: in place."""
    for p in model.parameters():
        p.add_(torch.randn_like(p))


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_the_average_is_the_recurrence_written_out() -> None:
    model = make_model()
    average = ExponentialMovingAverage(model, decay=0.35)
    expected = {name: p.double() for name, p in weights(model).items()}
    # (1 + n) / (10 + n): 2/11, 3/12, 4/13, then it would be 5/14 > 0.35
    for step, decay in enumerate((2 / 11, 3 / 12, 4 / 13, 0.35, 0.35), start=1):
        move(model)
        average.update(step)
        expected = {name: decay * expected[name] + (1 - decay) * p.double() for name, p in weights(model).items()}
    for name, tensor in average.averages.items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, expected[name].float(), rtol=1e-5, atol=1e-6)


def test_the_average_of_one_weight_that_stays_is_that_weight() -> None:
    model = make_model()
    average, before = ExponentialMovingAverage(model, decay=0.999), weights(model)
    for step in range(1, 50):
        average.update(step)
    assert equal(average.averages, before)


def test_before_the_first_step_the_average_is_the_model_and_not_its_memory() -> None:
    model = make_model()
    average, before = ExponentialMovingAverage(model, decay=0.9), weights(model)
    move(model)
    assert equal(average.averages, before)


@pytest.mark.parametrize("tied", [True, False])
def test_tied_weights_are_averaged_once_and_stay_tied(tied: bool) -> None:
    model = make_model(tie_word_embeddings=tied)
    average = ExponentialMovingAverage(model, decay=0.9)
    assert ("lm_head.weight" in average.averages) is not tied
    move(model)
    average.update(1)
    with average.in_place():
        embedding, head = model.model.embed_tokens.weight, model.lm_head.weight
        assert (embedding is head) is tied
        assert torch.equal(embedding, average.averages["model.embed_tokens.weight"])


def test_frozen_weights_are_not_averaged() -> None:
    model = make_model()
    model.model.layers.requires_grad_(False)
    names = {name for name, _ in model.named_parameters() if "layers" not in name}
    assert ExponentialMovingAverage(model, decay=0.9).averages.keys() == names


def test_in_place_the_model_computes_with_the_averages() -> None:
    model, ids = make_model(), torch.arange(10)[None]
    average = ExponentialMovingAverage(model, decay=0.9)
    move(model)
    average.update(1)
    averaged = make_model()
    averaged.load_state_dict(average.averages, strict=False)
    averaged.tie_weights()
    with torch.no_grad(), average.in_place():
        assert torch.equal(model(ids).logits, averaged(ids).logits)


class EvaluationError(Exception):
    pass


def test_in_place_restores_to_the_bit_even_after_an_exception() -> None:
    model = make_model()
    average = ExponentialMovingAverage(model, decay=0.9)
    move(model)
    average.update(1)
    before, pointers = weights(model), [p.data_ptr() for p in model.parameters()]
    shadow = {name: tensor.clone() for name, tensor in average.averages.items()}
    with average.in_place():
        assert not equal(weights(model), before)
    assert equal(weights(model), before)
    with pytest.raises(EvaluationError), average.in_place():
        raise EvaluationError
    assert equal(weights(model), before)
    assert [p.data_ptr() for p in model.parameters()] == pointers  # an optimizer holds on to them
    assert equal(average.averages, shadow)


def test_the_average_of_bfloat16_weights_is_float32_and_their_own_bits_come_back() -> None:
    model = make_model().bfloat16()
    average = ExponentialMovingAverage(model, decay=0.9999)
    start = average.averages["model.norm.weight"].clone()
    with torch.no_grad():
        model.model.norm.weight.fill_(0.5)
    for step in range(10_000_000, 10_000_003):
        average.update(step)
    # 1 minus three ten-thousandths of a half, of which bfloat16 knows nothing
    torch.testing.assert_close(average.averages["model.norm.weight"], 0.5 + (start - 0.5) * 0.9999**3)
    before = weights(model)
    with average.in_place():
        assert model.model.norm.weight.dtype == torch.bfloat16
    assert equal(weights(model), before)


def test_an_average_goes_on_from_the_weights_that_are_there() -> None:
    model = make_model()
    average, other = ExponentialMovingAverage(model, decay=0.9), ExponentialMovingAverage(model, decay=0.9)
    move(model)
    average.update(1)
    assert not equal(other.averages, average.averages)
    with average.in_place():  # as a checkpoint has put them there
        other.restart()
    saved = {name: tensor.clone() for name, tensor in other.averages.items()}
    move(model)
    assert equal(other.averages, saved)  # not the model's memory
    average.update(2)
    other.update(2)
    assert equal(other.averages, average.averages)
    assert not equal(other.averages, saved)
