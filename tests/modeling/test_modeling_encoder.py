"""The encoder-only model: what a position may see, padding, segments, pooling, loss."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel, AutoModelForMaskedLM

from paperformer import PaperformerEncoderModel, PaperformerForMaskedLM

from .tokens import ids, padded

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def model(kind, make_encoder) -> PaperformerForMaskedLM:
    """One model of each kind; tests leave it as it is."""
    return make_encoder(**kind)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(model, side):
    rows = [ids(7), ids(4), ids(2)]
    input_ids, attention_mask = padded(rows, side)
    batch = model(input_ids, attention_mask=attention_mask)
    for i, (row, mask) in enumerate(zip(rows, attention_mask.bool(), strict=True)):
        alone = model(row[None])
        torch.testing.assert_close(batch.logits[i][mask], alone.logits[0], **CLOSE)
        torch.testing.assert_close(batch.pooler_output[i], alone.pooler_output[0], **CLOSE)


@torch.no_grad()
def test_eager_equals_sdpa(kind, model, make_encoder):
    eager = make_encoder(**kind, attn_implementation="eager")
    input_ids, attention_mask = padded([ids(7), ids(4)], "left")
    expected, actual = (m(input_ids, attention_mask=attention_mask).logits for m in (model, eager))
    real = attention_mask.bool()
    torch.testing.assert_close(actual[real], expected[real], **CLOSE)


@torch.no_grad()
def test_every_position_sees_every_other(make_encoder):
    model, input_ids = make_encoder(), ids(1, 6)
    before = model(input_ids).logits
    for changed in range(6):
        other = input_ids.clone()
        other[0, changed] = (other[0, changed] - 2) % 47 + 3
        assert ((model(other).logits - before).abs().amax(-1) > 1e-3).all()


@torch.no_grad()
def test_segments_are_told_apart(make_encoder):
    model, input_ids = make_encoder(), ids(2, 6)
    segments = torch.tensor([[0, 0, 0, 1, 1, 1]]).expand(2, -1)
    plain = model(input_ids).logits
    torch.testing.assert_close(model(input_ids, token_type_ids=torch.zeros_like(segments)).logits, plain)
    assert (model(input_ids, token_type_ids=segments).logits - plain).abs().max() > 0.1
    without = make_encoder(type_vocab_size=0)
    with pytest.raises(ValueError, match="token_type_ids are given, but type_vocab_size is 0; leave them out"):
        without(input_ids, token_type_ids=segments)


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_pooling(make_encoder, side):
    rows = [ids(7), ids(4)]
    input_ids, attention_mask = padded(rows, side)
    means = make_encoder(pooling="mean").base_model
    output = means(input_ids, attention_mask=attention_mask)
    for i, mask in enumerate(attention_mask.bool()):
        torch.testing.assert_close(output.pooler_output[i], output.last_hidden_state[i][mask].mean(0))
    first = PaperformerEncoderModel(make_encoder(pooling="first").config).eval()
    output = first(input_ids, attention_mask=attention_mask)
    dense = first.pooler.dense
    for i, mask in enumerate(attention_mask.bool()):
        state = output.last_hidden_state[i][mask][0]
        torch.testing.assert_close(output.pooler_output[i], torch.tanh(dense.weight @ state + dense.bias), **CLOSE)
    assert make_encoder(pooling="first")(input_ids).pooler_output is None


def test_the_loss_is_torchs_of_the_masked_tokens(make_encoder):
    model, input_ids = make_encoder(label_smoothing=0.2), ids(3, 6)
    with torch.no_grad():
        model.lm_head.bias.normal_()
    labels = input_ids.masked_fill(torch.rand(3, 6) < 0.7, -100)
    for training, smoothing in ((True, 0.2), (False, 0.0)):  # an evaluation loss is never smoothed
        output = model.train(training)(input_ids, labels=labels, return_logits=True)
        expected = F.cross_entropy(output.logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
        torch.testing.assert_close(output.loss, expected)
        half = model(input_ids, labels=labels, num_items_in_batch=2 * int((labels != -100).sum())).loss
        torch.testing.assert_close(half, output.loss / 2)


@torch.no_grad()
def test_hidden_states_and_attentions(make_encoder):
    model, input_ids = make_encoder(attn_implementation="eager"), ids(2, 5)
    output = model(input_ids, output_hidden_states=True, output_attentions=True)
    assert [states.shape for states in output.hidden_states] == [(2, 5, 24)] * 3
    assert [weights.shape for weights in output.attentions] == [(2, 4, 5, 5)] * 2


@torch.no_grad()
def test_inputs_that_are_missing_or_given_twice(make_encoder):
    model, input_ids = make_encoder(), ids(2, 5)
    embeddings = model.get_input_embeddings()(input_ids)
    torch.testing.assert_close(model(inputs_embeds=embeddings).logits, model(input_ids).logits)
    for given in ({}, {"input_ids": input_ids, "inputs_embeds": embeddings}):
        with pytest.raises(ValueError, match="either input_ids or inputs_embeds, and not both"):
            model(**given)


@torch.no_grad()
def test_auto_classes(make_encoder, tmp_path):
    model, input_ids = make_encoder(), ids(1, 5)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert type(loaded) is PaperformerForMaskedLM
    assert torch.equal(loaded(input_ids).logits, model(input_ids).logits)
    base = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(base(input_ids).pooler_output, model(input_ids).pooler_output)


def test_it_learns_to_fill_in(make_encoder):
    """A masked token between two equal ones is that token again: only what is on both sides tells which."""
    model = make_encoder(initializer_range=0.1).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        labels = ids(32, 1).expand(-1, 3)
        masked = labels.clone()
        masked[:, 1] = 0
        loss = model(masked, labels=torch.where(masked == 0, labels, -100)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert loss < 0.5 < torch.tensor(47.0).log()
