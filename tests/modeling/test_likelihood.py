"""Closed forms of the loss, and the scale of what goes into the model and into the softmax."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.modeling.loss import linear_cross_entropy

from ..examples import examples

V = 50


def ids(*shape: int) -> torch.Tensor:
    return torch.randint(3, V, shape)


@torch.no_grad()
@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_the_perplexity_of_a_model_without_preference_is_the_size_of_its_vocabulary(make_model, label_smoothing):
    model, tokens = make_model(label_smoothing=label_smoothing), ids(2, 7)
    torch.nn.init.zeros_(model.lm_head.weight)
    for training in (True, False):  # a uniform prediction loses nothing to a smoothed target either
        loss = model.train(training)(tokens, labels=tokens).loss
        assert math.exp(loss) == pytest.approx(V, rel=1e-5)


def loss_and_gradient(logits: list[float], label: int, epsilon: float) -> tuple[float, torch.Tensor]:
    hidden = torch.tensor([logits], dtype=torch.float64, requires_grad=True)
    identity = torch.eye(len(logits), dtype=torch.float64)  # an output layer that lets the logits be chosen
    loss = linear_cross_entropy(hidden, identity, torch.tensor([label]), label_smoothing=epsilon)
    loss.backward()
    return float(loss.detach()), hidden.grad[0]


some_logits = st.lists(st.floats(-20, 20), min_size=2, max_size=12)


@settings(max_examples=examples(50))
@given(logits=some_logits, epsilon=st.floats(0, 0.9), data=st.data())
def test_label_smoothing_mixes_the_labels_loss_with_that_of_all_classes(logits, epsilon, data):
    """(1 - epsilon) (-log p_y) + epsilon / V sum_v (-log p_v) (Szegedy et al. 2016, section 7), number by number."""
    label = data.draw(st.integers(0, len(logits) - 1))
    normalizer = math.log(sum(math.exp(z) for z in logits))
    losses = [normalizer - z for z in logits]
    expected = (1 - epsilon) * losses[label] + epsilon * sum(losses) / len(losses)
    loss, gradient = loss_and_gradient(logits, label, epsilon)
    assert loss == pytest.approx(expected, abs=1e-9)
    target = [epsilon / len(logits) + (1 - epsilon) * (v == label) for v in range(len(logits))]
    assert gradient.tolist() == pytest.approx(
        [math.exp(-loss) - q for loss, q in zip(losses, target, strict=True)], abs=1e-9
    )


@pytest.mark.parametrize(("classes", "epsilon"), [(5, 0.1), (37, 0.2), (1000, 0.1)])
def test_the_smoothed_loss_is_least_at_finite_logits(classes, epsilon):
    """Its minimum is the entropy of the smoothed target, not 0, and no logit has to grow without end to reach it."""
    right, wrong = 1 - epsilon + epsilon / classes, epsilon / classes
    entropy = -right * math.log(right) - (classes - 1) * wrong * math.log(wrong)
    best = [math.log(right)] + [math.log(wrong)] * (classes - 1)
    loss, gradient = loss_and_gradient(best, 0, epsilon)
    assert loss == pytest.approx(entropy)
    assert gradient.abs().max() < 1e-12
    surer, _ = loss_and_gradient([best[0] + 3, *best[1:]], 0, epsilon)
    less_sure, _ = loss_and_gradient([best[0] - 3, *best[1:]], 0, epsilon)
    assert min(surer, less_sure) > entropy + 0.01


@torch.no_grad()
@pytest.mark.parametrize("hidden_size", [64, 256])
def test_scaled_embeddings_have_the_size_of_the_positions_and_tied_logits_that_of_one(make_seq2seq, hidden_size):
    """One matrix of variance 1/E serves both ends (Vaswani et al. 2017, section 3.4): times sqrt(E) it gives tokens of
    variance 1 beside sinusoids of mean square 1/2, and unscaled it gives logits of variance 1."""
    model = make_seq2seq(vocab_size=1000, hidden_size=hidden_size, initialization="xavier", scale_embedding=True)
    encoder, tokens, entering = model.model.encoder, torch.randint(3, 1000, (8, 20)), []
    encoder.dropout.register_forward_hook(lambda _, inputs, output: entering.append(inputs[0]))
    logits = model(tokens, decoder_input_ids=tokens).logits
    positions = encoder.positions.add_to(torch.zeros(1, 20, hidden_size), torch.arange(20)[None])
    assert float(positions.square().mean()) == pytest.approx(0.5, rel=1e-5)
    assert float((entering[0] - positions).var()) == pytest.approx(1, rel=0.1)
    assert float(logits.var()) == pytest.approx(1, rel=0.2)
