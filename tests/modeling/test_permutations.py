"""Attention alone knows no order: what a permutation of tokens changes, with positions and without them."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ..examples import examples

SOURCE = torch.tensor([[7, 11, 13, 17, 19, 23]])  # no token twice: another order is another sentence
TARGET = torch.tensor([[8, 9, 10]])
ORDERED = ["sinusoidal", "learned", "rope", "relative", "alibi"]

permutations = st.permutations(range(SOURCE.shape[1]))
# A reversal is apart, because a bias of the distance alone cannot tell it (see the test of ALiBi).
other_orders = permutations.filter(lambda order: sorted(order) not in (list(order), list(order)[::-1]))
few = settings(max_examples=examples(15))


@pytest.fixture(scope="module")
def models(make_seq2seq):
    """A model in float64 for each way to tell order."""
    return {
        scheme: make_seq2seq(position_embedding_type=scheme).double().requires_grad_(False)
        for scheme in (*ORDERED, "none")
    }


@few
@given(order=permutations)
def test_without_positions_the_encoder_is_permutation_equivariant(models, order):
    encoder = models["none"].model.encoder
    permuted, states = (encoder(ids).last_hidden_state for ids in (SOURCE[:, order], SOURCE))
    torch.testing.assert_close(permuted, states[:, order])


@few
@given(order=permutations)
def test_without_positions_a_translation_does_not_depend_on_the_order_of_the_source(models, order):
    permuted, logits = (models["none"](ids, decoder_input_ids=TARGET).logits for ids in (SOURCE[:, order], SOURCE))
    torch.testing.assert_close(permuted, logits)


@pytest.mark.parametrize("scheme", ORDERED)
@few
@given(order=other_orders)
def test_positions_tell_any_other_order(models, scheme, order):
    model = models[scheme]
    permuted, output = (model(ids, decoder_input_ids=TARGET) for ids in (SOURCE[:, order], SOURCE))
    states = output.encoder_last_hidden_state[:, order]
    assert (permuted.encoder_last_hidden_state - states).abs().max() > 1e-3
    assert (permuted.logits - output.logits).abs().max() > 1e-3


@pytest.mark.parametrize("scheme", ORDERED)
def test_only_alibi_reads_a_reversed_source_as_the_source_reversed(models, scheme):
    """Its bias is the same on both sides of a token, so an encoder cannot tell left from right (Press et al. 2022 made
    it for causal models)."""
    encoder = models[scheme].model.encoder
    difference = encoder(SOURCE.flip(1)).last_hidden_state - encoder(SOURCE).last_hidden_state.flip(1)
    assert difference.abs().max() < 1e-6 if scheme == "alibi" else difference.abs().max() > 1e-3


@pytest.mark.parametrize("scheme", [*ORDERED, "none"])
@few
@given(order=permutations)
def test_cross_attention_takes_the_encoders_states_in_any_order(models, scheme, order):
    """The order of the source is in its states alone: cross-attention adds no positions of its own."""
    model = models[scheme]
    states = model.model.encoder(SOURCE).last_hidden_state
    permuted, logits = (
        model(encoder_outputs=(source,), decoder_input_ids=TARGET).logits for source in (states[:, order], states)
    )
    torch.testing.assert_close(permuted, logits)


@torch.no_grad()
@pytest.mark.parametrize("num_hidden_layers", [1, 2])
def test_a_causal_model_tells_order_without_positions_from_two_layers_on(make_lm, num_hidden_layers):
    """One layer sees its past as a set; a second one sees states that know how long their own past was (Haviv et al.
    2022, arXiv 2203.16634)."""
    model = make_lm(position_embedding_type="none", num_hidden_layers=num_hidden_layers).double()
    swapped = SOURCE[:, [1, 0, 2, 3, 4, 5]]
    difference = (model(swapped).logits - model(SOURCE).logits)[0, -1].abs().max()
    assert difference < 1e-6 if num_hidden_layers == 1 else difference > 1e-3
