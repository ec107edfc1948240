"""Attention weights of padded batches, down to a row that is nothing but padding."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

REAL = {
    "left": torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]),
    "right": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]),
}  # the last row of each has no token at all
ATTENTIONS = {
    "lm": ["attentions"],
    "encoder": ["attentions"],
    "seq2seq": ["encoder_attentions", "decoder_attentions", "cross_attentions"],
}

sides = pytest.mark.parametrize("side", REAL)
families = pytest.mark.parametrize("family", ATTENTIONS)


def batch(family: str, side: str, *, rows: slice = slice(None)) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 50, (4, 5), generator=generator)[rows]
    mask = REAL[side][rows]
    inputs = {"input_ids": tokens.masked_fill(mask == 0, 0), "attention_mask": mask}
    inputs["labels"] = tokens.masked_fill(mask == 0, -100)
    if family == "seq2seq":
        inputs |= {"decoder_input_ids": inputs["input_ids"], "decoder_attention_mask": mask}
    return inputs


@pytest.fixture
def make(request) -> Callable[..., PreTrainedModel]:
    return lambda family, **options: request.getfixturevalue(f"make_{family}")(**options).double()


@torch.no_grad()
@sides
@families
def test_weights_sum_to_one_and_are_zero_on_padding(make, family, side):
    """For every query that is a token; what a padded position attends to, nobody reads."""
    output = make(family, attn_implementation="eager")(**batch(family, side), output_attentions=True)
    real = REAL[side].bool()
    padded_keys = ~real[:, None].expand(-1, 5, -1)[real]  # (tokens, S)
    for name in ATTENTIONS[family]:
        for weights in output[name]:  # (B, H, T, S), a layer each
            assert weights.isfinite().all()
            by_query = weights.movedim(1, -1)[real]  # (tokens, S, H)
            torch.testing.assert_close(by_query.sum(1), torch.ones_like(by_query[:, 0]))
            assert by_query[padded_keys].count_nonzero() == 0


def gradients(model: PreTrainedModel, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    model.zero_grad()
    model(**inputs).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@sides
@families
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("norm_position", ["post", "pre", "peri"])
def test_a_row_of_padding_alone_leaves_outputs_and_gradients_of_the_others_as_they_are(
    make, family, side, implementation, norm_position
):
    model = make(family, attn_implementation=implementation, norm_position=norm_position)
    whole, without = batch(family, side), batch(family, side, rows=slice(3))
    with torch.no_grad():
        logits, expected = model(**whole).logits, model(**without).logits
    assert logits.isfinite().all()
    real = REAL[side][:3].bool()
    torch.testing.assert_close(logits[:3][real], expected[real])
    torch.testing.assert_close(gradients(model, whole), gradients(model, without))
