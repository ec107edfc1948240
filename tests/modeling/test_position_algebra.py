"""Why sinusoids and rotations tell distances: the identities behind both (Vaswani et al. 2017; Su et al. 2021)."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from paperformer import PaperformerLMConfig
from paperformer.modeling.positions import build_positions, rotate

from ..examples import examples

HIDDEN_SIZE, HEADS, HEAD_DIM = 32, 2, 16
CLOSE = {"rtol": 0, "atol": 1e-4}  # angles are float32: at position 1000 they are exact to 6e-5

places = st.integers(0, 1000)
some = settings(max_examples=examples(40))


def scheme(name: str, hidden_size: int = HIDDEN_SIZE):
    config = PaperformerLMConfig(hidden_size=hidden_size, num_attention_heads=HEADS, position_embedding_type=name)
    return build_positions(config)


def sinusoids(position: int, hidden_size: int = HIDDEN_SIZE) -> Tensor:
    """PE(position), (E,)."""
    zeros = torch.zeros(1, 1, hidden_size, dtype=torch.float64)
    return scheme("sinusoidal", hidden_size).add_to(zeros, torch.tensor([[position]])).flatten()


def shift(offset: int) -> Tensor:
    """The matrix that leads from PE(pos) to PE(pos + offset), made of nothing but PE(offset): (E, E).

    By the addition theorems, sin(a + b) = sin(a) cos(b) + cos(a) sin(b) and cos(a + b) = cos(a) cos(b) - sin(a) sin(b):
    one block, a rotation, for each pair of a sine and a cosine.
    """
    sines, cosines = sinusoids(offset).view(-1, 2).unbind(-1)
    blocks = torch.stack((cosines, sines, -sines, cosines), dim=-1).view(-1, 2, 2)
    return torch.block_diag(*blocks)


@some
@given(position=places, offset=places)
def test_sinusoids_of_a_later_position_are_a_rotation_of_the_earlier_ones(position, offset):
    """PE(pos + k) is a linear function of PE(pos), the same one for every pos (Vaswani et al. 2017, section 3.5)."""
    matrix = shift(offset)
    torch.testing.assert_close(matrix @ sinusoids(position), sinusoids(position + offset), **CLOSE)
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(HIDDEN_SIZE, dtype=torch.float64), **CLOSE)


@some
@given(positions=st.tuples(places, places), offset=places)
def test_the_product_of_two_sinusoidal_vectors_depends_on_their_distance_only(positions, offset):
    first, second = positions
    product = sinusoids(first) @ sinusoids(second)
    torch.testing.assert_close(sinusoids(first + offset) @ sinusoids(second + offset), product, rtol=0, atol=1e-3)


@pytest.mark.parametrize("hidden_size", [32, 512])
def test_wavelengths_are_a_geometric_progression_from_2_pi_to_10000_times_2_pi(hidden_size):
    sines, cosines = sinusoids(1, hidden_size).view(-1, 2).unbind(-1)
    wavelengths = 2 * math.pi / torch.atan2(sines, cosines)  # the angle at position 1 is the frequency
    ratios = wavelengths[1:] / wavelengths[:-1]
    assert float(wavelengths[0]) == pytest.approx(2 * math.pi, rel=1e-5)
    torch.testing.assert_close(ratios, torch.full_like(ratios, 10_000 ** (2 / hidden_size)), rtol=1e-5, atol=0)
    # The last exponent is (E - 2) / E: one more step of the progression would make it 1.
    assert float(wavelengths[-1] * ratios[-1]) == pytest.approx(10_000 * 2 * math.pi, rel=1e-5)


def heads() -> Tensor:
    """Queries or keys of one position, (1, H, 1, D)."""
    return torch.randn(1, HEADS, 1, HEAD_DIM, dtype=torch.float64)


def turned(states: Tensor, position: int) -> Tensor:
    ids = torch.tensor([[position]])
    return rotate(states, scheme("rope").rotation(torch.zeros(1, 1, HIDDEN_SIZE, dtype=torch.float64), ids))


def as_complex(states: Tensor) -> Tensor:
    """Pairs (i, i + D/2) as the real and imaginary parts of D/2 numbers."""
    return torch.complex(*states.chunk(2, dim=-1))


def phases(position: int) -> Tensor:
    """e^(i m theta_j) for m the position and theta_j = 10000^(-2j/D), (D/2,)."""
    frequencies = 10_000.0 ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM)
    return torch.polar(torch.ones_like(frequencies), position * frequencies)


@some
@given(position=places)
def test_rope_is_a_multiplication_by_complex_phases(position):
    """Su et al. (2021), equation 12, for each pair."""
    states = heads()
    torch.testing.assert_close(as_complex(turned(states, position)), as_complex(states) * phases(position), **CLOSE)
    torch.testing.assert_close(turned(states, position).norm(dim=-1), states.norm(dim=-1), rtol=1e-6, atol=0)


@some
@given(query_at=places, key_at=places)
def test_rope_scores_are_a_function_of_the_distance(query_at, key_at):
    """q_m . k_n = Re[sum q conj(k) e^(i (m - n) theta)]: m and n enter through m - n only (Su et al. 2021, eq. 12)."""
    query, key = heads(), heads()
    scores = (turned(query, query_at) * turned(key, key_at)).sum(-1)
    by_distance = as_complex(query) * as_complex(key).conj() * phases(query_at - key_at)
    torch.testing.assert_close(scores, by_distance.sum(-1).real, rtol=0, atol=2e-3)


def test_positions_5_and_12_score_like_10_and_17_but_not_like_5_and_13():
    query, key = heads(), heads()
    scores = {(m, n): (turned(query, m) * turned(key, n)).sum(-1) for m, n in ((5, 12), (10, 17), (5, 13))}
    torch.testing.assert_close(scores[10, 17], scores[5, 12], rtol=0, atol=1e-5)
    assert (scores[5, 13] - scores[5, 12]).abs().min() > 1e-2


def test_rope_leaves_position_zero_as_it_is():
    states = heads()
    assert torch.equal(turned(states, 0), states)
    assert not torch.allclose(turned(states, 1), states)


@torch.no_grad()
@pytest.mark.parametrize(("name", "moves"), [
    ("rope", False), ("alibi", False), ("relative", False), ("sinusoidal", True), ("learned", True)
])  # fmt: skip
def test_only_relative_schemes_give_the_same_logits_wherever_the_text_begins(make_lm, name, moves):
    model, tokens = make_lm(position_embedding_type=name).double(), torch.tensor([[7, 11, 13, 17, 19]])
    late = model(tokens, position_ids=torch.arange(9, 14)[None], use_cache=False)  # a cache would count from 0
    difference = (late.logits - model(tokens).logits).abs().max()
    assert difference > 1e-2 if moves else difference < 1e-4
