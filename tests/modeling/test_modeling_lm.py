"""The language model: what a position may see, padding, loss, and what is returned."""

import shutil

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import DynamicCache

from paperformer import PaperformerForCausalLM
from paperformer.modeling.dropout import Dropout

from .tokens import ids, padded

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def model(kind, make_lm) -> PaperformerForCausalLM:
    """One model of each kind; tests leave it as it is."""
    return make_lm(**kind)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(model, side):
    rows = [ids(7), ids(4), ids(2)]
    input_ids, attention_mask = padded(rows, side)
    batch = model(input_ids, attention_mask=attention_mask).logits
    for row, logits, mask in zip(rows, batch, attention_mask.bool(), strict=True):
        torch.testing.assert_close(logits[mask], model(row[None]).logits[0], **CLOSE)


@torch.no_grad()
def test_no_position_sees_a_later_one(model):
    input_ids = ids(1, 8)
    changed = input_ids.clone()
    changed[0, 5] = (changed[0, 5] - 2) % 47 + 3
    before, after = model(input_ids).logits, model(changed).logits
    torch.testing.assert_close(after[:, :5], before[:, :5], **CLOSE)
    assert ((after - before)[:, 5:].abs().amax(-1) > 1e-3).all()  # and every later one sees it


@torch.no_grad()
@pytest.mark.parametrize("position_embedding_type", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
def test_positions_tell_one_token_from_the_same_token_later(make_lm, position_embedding_type):
    # In one layer without positions, a token that has seen as many sevens as eights is the same wherever it is.
    model = make_lm(position_embedding_type=position_embedding_type, num_hidden_layers=1)
    first, second = model(torch.tensor([[7, 8, 8, 7, 7, 8]])).logits[0, [1, 5]]
    assert torch.allclose(first, second, atol=1e-4) is (position_embedding_type == "none")


@torch.no_grad()
def test_a_conversation_goes_on_from_its_cache(model):
    input_ids = ids(2, 9)
    cache = DynamicCache(config=model.config)
    model(input_ids[:, :5], past_key_values=cache, use_cache=True)
    rest = model(input_ids[:, 5:], past_key_values=cache, use_cache=True)
    torch.testing.assert_close(rest.logits, model(input_ids).logits[:, 5:], **CLOSE)
    assert rest.past_key_values is cache
    assert cache.get_seq_length() == 9


@torch.no_grad()
def test_positions_may_start_anywhere_for_schemes_that_know_distances_only(make_lm):
    for scheme in ("rope", "alibi", "relative"):
        model, input_ids, shifted = make_lm(position_embedding_type=scheme), ids(2, 6), torch.arange(5, 11)[None]
        expected = model(input_ids).logits
        cache = DynamicCache(config=model.config)
        start = model(input_ids[:, :4], position_ids=shifted[:, :4], past_key_values=cache, use_cache=True).logits
        rest = model(input_ids[:, 4:], position_ids=shifted[:, 4:], past_key_values=cache, use_cache=True).logits
        torch.testing.assert_close(torch.cat((start, rest), 1), expected, **CLOSE)


@torch.no_grad()
def test_packed_texts_do_not_see_each_other(model):
    first, second = ids(1, 5), ids(1, 4)
    packed = torch.cat((first, second), dim=1)
    positions = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2, 3]])
    if model.config.linear_attention:
        with pytest.raises(ValueError, match=r"neither keep several sequences in a row apart.*its own row"):
            model(packed, position_ids=positions, use_cache=False)
        return
    logits = model(packed, position_ids=positions, use_cache=False).logits
    torch.testing.assert_close(logits[:, 5:], model(second).logits, **CLOSE)


@torch.no_grad()
def test_eager_equals_sdpa(kind, model, make_lm):
    eager = make_lm(**kind, attn_implementation="eager")
    eager.load_state_dict(model.state_dict())
    input_ids, attention_mask = padded([ids(7), ids(4)], "left")
    torch.testing.assert_close(eager(input_ids).logits, model(input_ids).logits, **CLOSE)
    expected, actual = (m(input_ids, attention_mask=attention_mask).logits for m in (model, eager))
    real = attention_mask.bool()
    torch.testing.assert_close(actual[real], expected[real], **CLOSE)


@pytest.mark.proof
@torch.no_grad()
@pytest.mark.skipif(shutil.which("c++") is None, reason="flex attention is compiled, which needs a C++ compiler")
@pytest.mark.parametrize("options", [{"attention_window": 5}, {"position_embedding_type": "alibi"}], ids=str)
def test_flex_attention_equals_sdpa(make_lm, options):
    model, input_ids = make_lm(hidden_size=64, num_hidden_layers=1, max_position_embeddings=128, **options), ids(2, 128)
    expected = model(input_ids).logits
    model.set_attn_implementation("flex_attention")
    torch.testing.assert_close(model(input_ids).logits, expected, **CLOSE)


@torch.no_grad()
def test_embeddings_may_be_given_instead_of_ids(model):
    input_ids = ids(2, 5)
    embeddings = model.get_input_embeddings()(input_ids)
    torch.testing.assert_close(model(inputs_embeds=embeddings).logits, model(input_ids).logits)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds, and not both"):
        model(input_ids, inputs_embeds=embeddings)
    with pytest.raises(ValueError, match="either input_ids or inputs_embeds"):
        model()


@torch.no_grad()
@pytest.mark.parametrize(("keep", "positions"), [
    (0, slice(None)), (1, slice(-1, None)), (3, slice(-3, None)), (torch.tensor([0, 4]), [0, 4])
])  # fmt: skip
def test_logits_to_keep(make_lm, keep, positions):
    model, input_ids = make_lm(), ids(2, 5)
    torch.testing.assert_close(model(input_ids, logits_to_keep=keep).logits, model(input_ids).logits[:, positions])


def test_the_loss_is_torchs_of_the_next_token(make_lm):
    model, input_ids = make_lm(label_smoothing=0.2), ids(3, 6)
    labels = input_ids.masked_fill(torch.rand(3, 6) < 0.3, -100)
    for training, smoothing in ((True, 0.2), (False, 0.0)):  # an evaluation loss is never smoothed
        output = model.train(training)(input_ids, labels=labels, return_logits=True)
        predictions, targets = output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
        torch.testing.assert_close(output.loss, F.cross_entropy(predictions, targets, label_smoothing=smoothing))


def test_labels_may_be_shifted_already(make_lm):
    """Where a sequence is split over processes, the first label of one part belongs to the last position of another."""
    model, input_ids = make_lm(label_smoothing=0.2).train(), ids(3, 6)
    shifted = F.pad(input_ids[:, 1:], (0, 1), value=-100)
    whole = model(input_ids, labels=input_ids)
    torch.testing.assert_close(model(input_ids, shift_labels=shifted).loss, whole.loss)
    assert model(input_ids, shift_labels=shifted).past_key_values is None
    # As transformers' Trainer gives them where sequences are split, and where they are not.
    both = model(input_ids, labels=torch.zeros_like(input_ids), shift_labels=shifted)
    neither = model(input_ids, labels=input_ids, shift_labels=None)
    torch.testing.assert_close(torch.stack((both.loss, neither.loss)), whole.loss.expand(2))


def test_accumulated_halves_are_one_whole_batch(make_lm):
    model, input_ids = make_lm(label_smoothing=0.1).train(), ids(4, 6)
    labels = input_ids.clone()
    labels[0, 2:], labels[3, 4:] = -100, -100  # halves of different weight
    num_items = int((labels[:, 1:] != -100).sum())
    whole = model(input_ids, labels=labels).loss
    halves = [
        model(input_ids[half], labels=labels[half], num_items_in_batch=num_items).loss
        for half in (slice(0, 2), slice(2, 4))
    ]
    torch.testing.assert_close(sum(halves), whole)


def test_a_cache_is_kept_only_where_it_is_of_use(make_lm):
    model, input_ids = make_lm(), ids(2, 5)
    assert model(input_ids).past_key_values.get_seq_length() == 5
    assert model(input_ids, use_cache=False).past_key_values is None
    assert model(input_ids, labels=input_ids).past_key_values is None


def test_hidden_states_and_attentions(make_lm):
    model, input_ids = make_lm(attn_implementation="eager", norm_position="pre"), ids(2, 5)
    output = model(input_ids, output_hidden_states=True, output_attentions=True)
    assert [tuple(states.shape) for states in output.hidden_states] == [(2, 5, 24)] * 3  # embeddings and two layers
    assert [tuple(weights.shape) for weights in output.attentions] == [(2, 4, 5, 5)] * 2
    torch.testing.assert_close(output.hidden_states[0], model.get_input_embeddings()(input_ids))
    torch.testing.assert_close(model.lm_head(output.hidden_states[-1]), output.logits)
    for weights in output.attentions:
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4, 5))
        assert weights.triu(1).count_nonzero() == 0
    plain = model(input_ids)
    assert plain.hidden_states is plain.attentions is None


def test_what_is_recorded_is_part_of_the_graph(make_lm):
    model = make_lm(attn_implementation="eager")
    output = model(ids(2, 5), output_hidden_states=True, output_attentions=True)
    recorded = (*output.hidden_states[:-1], *output.attentions)
    for tensor in recorded:
        tensor.retain_grad()
    output.logits.square().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.count_nonzero() for tensor in recorded)


def test_dropout_is_where_the_paper_puts_it(make_lm):
    """On the sum of embeddings and positions, and on every sub-layer's output; not inside the sub-layers."""
    active = {name for name, m in make_lm(dropout=0.1).named_modules() if isinstance(m, Dropout) and m.p > 0}
    residuals = {f"model.layers.{i}.{sub_layer}_residual.dropout" for i in (0, 1) for sub_layer in ("self_attn", "mlp")}
    assert active == {"model.dropout"} | residuals


@pytest.mark.parametrize("position_embedding_type", ["sinusoidal", "learned", "rope", "none"])
def test_what_enters_the_first_block(make_lm, position_embedding_type):
    model = make_lm(position_embedding_type=position_embedding_type, scale_embedding=True)
    entering: list[Tensor] = []
    model.model.dropout.register_forward_hook(lambda _, args, output: entering.append(args[0]))
    input_ids = ids(1, 5)
    model(input_ids)
    scaled = model.get_input_embeddings().weight[input_ids] * 24**0.5
    expected = model.model.positions.add_to(scaled, torch.arange(5)[None])
    torch.testing.assert_close(entering[0], expected)
