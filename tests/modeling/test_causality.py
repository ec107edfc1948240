"""No position depends on a later one: by values, and by gradients that are zero to the last bit."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

LENGTH = 6
EARLIER_AND_SELF = torch.ones(LENGTH, LENGTH).tril().bool()  # (position, token it may depend on)

implementations = pytest.mark.parametrize("implementation", ["eager", "sdpa"])
norm_positions = pytest.mark.parametrize("norm_position", ["post", "pre", "peri"])


@pytest.fixture(params=["lm", "decoder"])
def make_logits(request, make_lm, make_seq2seq) -> Callable[..., Callable[[Tensor], Tensor]]:
    """Makes the function from a text's embeddings, (1, T, E), to its logits, (T, V)."""

    def make(**options) -> Callable[[Tensor], Tensor]:
        if request.param == "lm":
            model = make_lm(**options).double()
            return lambda embeddings: model(inputs_embeds=embeddings).logits[0]
        model, source = make_seq2seq(**options).double(), torch.tensor([[5, 6, 7, 8]])
        return lambda embeddings: model(source, decoder_inputs_embeds=embeddings).logits[0]

    return make


def text() -> Tensor:
    return torch.randn(1, LENGTH, 24, dtype=torch.float64)


@implementations
@norm_positions
def test_gradients_reach_earlier_tokens_only(make_logits, norm_position, implementation):
    logits = make_logits(norm_position=norm_position, attn_implementation=implementation)
    embeddings = text().requires_grad_()
    outputs = logits(embeddings)
    weights = torch.randn_like(outputs)
    gradients = torch.stack(
        [torch.autograd.grad((outputs * weights)[t].sum(), embeddings, retain_graph=True)[0][0] for t in range(LENGTH)]
    )  # (T, T, E): of the logits at t with respect to the embedding at s
    reaches = gradients.count_nonzero(dim=-1) > 0
    assert torch.equal(reaches, EARLIER_AND_SELF)


@torch.no_grad()
@implementations
@norm_positions
def test_a_changed_token_changes_nothing_before_it(make_logits, norm_position, implementation):
    logits = make_logits(norm_position=norm_position, attn_implementation=implementation)
    embeddings, others = text(), text()
    before = logits(embeddings)
    for s in range(LENGTH):
        changed = embeddings.clone()
        changed[:, s] = others[:, s]
        change = (logits(changed) - before).abs().amax(-1)
        assert (change[:s] < 1e-12).all()
        assert (change[s:] > 1e-6).all()
