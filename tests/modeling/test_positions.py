"""Positions against the papers' formulas, and their independence of padding."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.cache_utils import StaticCache
from transformers.models.t5.modeling_t5 import T5Attention

from paperformer import PaperformerLMConfig, PaperformerLMModel
from paperformer.modeling.positions import (
    NoPositions,
    alibi_slopes,
    build_positions,
    position_ids_from_mask,
    rotate,
)

from ..examples import examples

HIDDEN_SIZE, HEAD_DIM = 16, 8


def positions(scheme: str, *, is_causal: bool = False, **options) -> NoPositions:
    torch.manual_seed(0)
    options = {"hidden_size": HIDDEN_SIZE, "num_attention_heads": 2, **options}
    return build_positions(PaperformerLMConfig(position_embedding_type=scheme, **options), is_causal=is_causal)


@pytest.mark.parametrize("initialization", ["xavier", "normal", "gpt2"])
@pytest.mark.parametrize("scale_embedding", [False, True])
def test_how_large_sinusoids_are_beside_the_embeddings_of_a_new_model(initialization, scale_embedding):
    torch.manual_seed(0)
    size = {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 8, "num_hidden_layers": 1}
    config = PaperformerLMConfig(
        **size,
        num_attention_heads=2,
        position_embedding_type="sinusoidal",
        initialization=initialization,
        scale_embedding=scale_embedding,
    )
    stack = PaperformerLMModel(config)
    ids = torch.arange(500)[None]
    with torch.no_grad():
        embeddings = stack.embed(ids, None)
        waves = stack.positions.add_to(embeddings, ids) - embeddings
    measured = (waves.square().mean() / embeddings.square().mean()).sqrt()
    assert config.sinusoids_to_embeddings == pytest.approx(measured.item(), rel=0.02)


def test_sinusoids_are_the_papers():
    """Vaswani et al. (2017), section 3.5, written out number by number."""
    ids = torch.tensor([[0, 1, 2, 3], [7, 50, 999, 5000]])  # beyond max_position_embeddings, too
    embeddings = torch.randn(2, 4, HIDDEN_SIZE)
    waves = positions("sinusoidal").add_to(embeddings, ids) - embeddings
    for row, column in [(row, column) for row in range(2) for column in range(4)]:
        pos = int(ids[row, column])
        for i in range(HIDDEN_SIZE // 2):
            angle = pos / 10_000 ** (2 * i / HIDDEN_SIZE)
            assert waves[row, column, 2 * i] == pytest.approx(math.sin(angle), abs=1e-3)
            assert waves[row, column, 2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-3)


def test_sinusoids_keep_the_type_of_the_embeddings():
    waves = positions("sinusoidal").add_to(torch.zeros(1, 3, HIDDEN_SIZE, dtype=torch.bfloat16), torch.arange(3)[None])
    assert waves.dtype == torch.bfloat16
    exact = positions("sinusoidal").add_to(torch.zeros(1, 3, HIDDEN_SIZE), torch.arange(3)[None])
    assert torch.equal(waves, exact.bfloat16())  # rounded once, at the end


def test_learned_positions_add_their_row_of_the_table():
    learned = positions("learned", max_position_embeddings=10)
    assert learned.table.weight.shape == (10, HIDDEN_SIZE)
    embeddings, ids = torch.randn(2, 3, HIDDEN_SIZE), torch.tensor([[0, 0, 1], [9, 2, 5]])
    torch.testing.assert_close(learned.add_to(embeddings, ids), embeddings + learned.table.weight[ids])


@pytest.mark.parametrize(("scheme", "way"), [
    ("sinusoidal", "adds"), ("learned", "adds"), ("rope", "rotates"), ("alibi", "biases"), ("relative", "biases"),
    ("none", ""),
])  # fmt: skip
def test_a_scheme_works_in_one_way_only(scheme, way):
    module, embeddings, ids = positions(scheme), torch.randn(1, 3, HIDDEN_SIZE), torch.arange(3)[None]
    assert torch.equal(module.add_to(embeddings, ids), embeddings) is (way != "adds")
    assert (module.rotation(embeddings, ids) is not None) is (way == "rotates")
    assert (module.attention_bias(embeddings, ids, None, None) is not None) is (way == "biases")


def test_only_learned_tables_are_saved():
    assert list(positions("learned").state_dict()) == ["table.weight"]
    assert list(positions("relative").state_dict()) == ["table.weight"]
    for scheme in ("sinusoidal", "rope", "alibi", "none"):
        assert not positions(scheme).state_dict()


def test_a_position_past_the_learned_table_is_named():
    learned, embeddings = positions("learned", max_position_embeddings=10), torch.randn(1, 2, HIDDEN_SIZE)
    learned.add_to(embeddings, torch.tensor([[8, 9]]))
    message = "position 10 is past the table of 10 learned positions; shorten the input .* or train with a larger"
    with pytest.raises(ValueError, match=message):
        learned.add_to(embeddings, torch.tensor([[9, 10]]))
    learned.add_to(torch.randn(1, 20, HIDDEN_SIZE), torch.arange(20)[None] % 10)  # two sequences in one row


@pytest.mark.parametrize(("num_heads", "slopes"), [
    (1, [2**-8]),
    (4, [2**-2, 2**-4, 2**-6, 2**-8]),
    (8, [1 / 2**i for i in range(1, 9)]),  # Press et al. (2022), section 3: 1/2, 1/4, ..., 1/256
    (16, [1 / 2 ** (i / 2) for i in range(1, 17)]),  # the same: 1/2^0.5, 1/2^1, 1/2^1.5, ..., 1/2^8
    (12, [1 / 2**i for i in range(1, 9)] + [1 / 2**0.5, 1 / 2**1.5, 1 / 2**2.5, 1 / 2**3.5]),
])  # fmt: skip
def test_alibi_slopes_are_the_papers(num_heads, slopes):
    torch.testing.assert_close(alibi_slopes(num_heads), torch.tensor(slopes))


def test_alibi_is_minus_slope_times_distance():
    bias = positions("alibi").attention_bias(torch.zeros(1, 3, HIDDEN_SIZE), torch.arange(3)[None], None, None)
    distance = torch.tensor([[0, 1, 2], [1, 0, 1], [2, 1, 0]])
    assert torch.equal(bias, -torch.stack((distance / 2**4, distance / 2**8))[None])
    half = positions("alibi").attention_bias(torch.zeros(1, 3, 4).bfloat16(), torch.arange(3)[None], None, None)
    assert half.dtype == torch.bfloat16


@pytest.mark.parametrize(("num_buckets", "max_distance"), [(32, 128), (8, 20), (64, 512)])
@pytest.mark.parametrize("is_causal", [True, False])
def test_relative_buckets_are_those_of_t5(is_causal, num_buckets, max_distance):
    options = {"relative_attention_num_buckets": num_buckets, "relative_attention_max_distance": max_distance}
    ours = positions("relative", is_causal=is_causal, **options)
    ids = torch.arange(700)[None]
    bias = ours.attention_bias(torch.zeros(1, 1, HIDDEN_SIZE), ids, None, None)
    theirs = T5Attention._relative_position_bucket(ids[0] - ids.T, not is_causal, num_buckets, max_distance)
    assert torch.equal(bias, ours.table.weight[theirs].permute(2, 0, 1)[None])
    if not is_causal:  # both halves are used
        assert set(theirs.flatten().tolist()) == set(range(num_buckets)) - {num_buckets // 2}


@pytest.mark.parametrize("scheme", ["alibi", "relative"])
@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=3), side=st.sampled_from(["left", "right"]))
@settings(max_examples=examples(25))
def test_biases_follow_positions_and_not_places(scheme, lengths, side):
    module, longest = positions(scheme, is_causal=True), max(lengths)
    rows = [torch.ones(length, dtype=torch.long) for length in lengths]
    mask = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_side=side)
    ids = position_ids_from_mask(mask, longest, 0, mask.device)
    hidden_states = torch.zeros(len(rows), longest, HIDDEN_SIZE)
    batch = module.attention_bias(hidden_states, ids, mask, None).detach()
    cache = StaticCache(PaperformerLMConfig(num_hidden_layers=1), max_cache_len=9)  # a new one: room for all keys
    cached = module.attention_bias(hidden_states, ids, mask, cache).detach()
    assert cached.shape == (len(rows), 2, longest, 9)
    for bias, with_room, real in zip(batch, cached[..., :longest], mask.bool(), strict=True):
        alone = module.attention_bias(hidden_states[:1], torch.arange(int(real.sum()))[None], None, None)[0]
        assert torch.equal(bias[:, real][:, :, real], alone)
        assert torch.equal(with_room[:, real][:, :, real], alone)


def rotated(heads: torch.Tensor, position: int) -> torch.Tensor:
    """`heads`, (D,), turned by RoPE at `position`."""
    rope = positions("rope").double()
    return rotate(heads.view(1, 1, 1, -1), rope.rotation(heads.view(1, 1, -1), torch.tensor([[position]]))).flatten()


def test_rope_turns_pairs_by_the_papers_angles():
    """Su et al. (2021), equations 15 and 34; here pairs are (i, i + D/2)."""
    x, position = torch.randn(HEAD_DIM, dtype=torch.float64), 5
    turned = rotated(x, position)
    for i in range(HEAD_DIM // 2):
        angle = position * 10_000 ** (-2 * i / HEAD_DIM)
        a, b = float(x[i]), float(x[i + HEAD_DIM // 2])
        assert turned[i] == pytest.approx(a * math.cos(angle) - b * math.sin(angle), abs=1e-5)
        assert turned[i + HEAD_DIM // 2] == pytest.approx(a * math.sin(angle) + b * math.cos(angle), abs=1e-5)


@settings(max_examples=examples(25))
@given(query_at=st.integers(0, 400), key_at=st.integers(0, 400), shift=st.integers(0, 400))
def test_rope_scores_depend_on_the_distance_only(query_at, key_at, shift):
    generator = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, HEAD_DIM, generator=generator, dtype=torch.float64)
    score = rotated(query, query_at) @ rotated(key, key_at)
    torch.testing.assert_close(
        score, rotated(query, query_at + shift) @ rotated(key, key_at + shift), atol=1e-3, rtol=0
    )
    torch.testing.assert_close(rotated(query, query_at).norm(), query.norm())


def test_rope_scores_do_depend_on_the_distance():
    query, key = torch.randn(2, HEAD_DIM, dtype=torch.float64)
    assert abs(rotated(query, 3) @ rotated(key, 1) - rotated(query, 3) @ rotated(key, 2)) > 1e-3


def test_rope_variants_come_from_transformers():
    linear = positions("rope", rope_parameters={"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0})
    torch.testing.assert_close(linear.inv_freq, positions("rope").inv_freq / 4)
    yarn = positions("rope", rope_parameters={"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0})
    assert yarn.attention_scaling != 1
    cos, _ = yarn.rotation(torch.zeros(1, 1, HIDDEN_SIZE), torch.zeros(1, 1))
    torch.testing.assert_close(cos, torch.full_like(cos, yarn.attention_scaling))


@pytest.mark.parametrize(("mask", "expected"), [
    ([1, 1, 1, 1], [0, 1, 2, 3]),
    ([0, 0, 1, 1], [0, 0, 0, 1]),
    ([1, 1, 0, 0], [0, 1, 1, 1]),
    ([1, 0, 1, 0], [0, 0, 1, 1]),
    ([0, 0, 0, 0], [0, 0, 0, 0]),
])  # fmt: skip
def test_position_ids_do_not_count_padding(mask, expected):
    mask = torch.tensor([mask])
    assert position_ids_from_mask(mask, 4, 0, mask.device).tolist() == [expected]
    assert position_ids_from_mask(mask, 2, 2, mask.device).tolist() == [expected[2:]]  # two tokens are in the cache
    assert position_ids_from_mask(mask.bool(), 4, 0, mask.device).tolist() == [expected]


@pytest.mark.parametrize("past_length", [3, torch.tensor(3)])
def test_position_ids_without_a_mask_go_on_where_the_cache_ends(past_length):
    four_dimensional = torch.ones(2, 1, 2, 5)
    for mask in (None, four_dimensional):
        assert position_ids_from_mask(mask, 2, past_length, torch.device("cpu")).tolist() == [[3, 4]]
