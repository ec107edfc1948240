"""The encoder-decoder: who sees whom, padding, teacher forcing, loss, tied embeddings, and what is returned."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DataCollatorForSeq2Seq
from transformers.modeling_outputs import BaseModelOutput

from paperformer import PaperformerForConditionalGeneration
from paperformer.modeling.dropout import Dropout

from .tokens import ids, padded

CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(scope="module")
def model(kind, make_seq2seq) -> PaperformerForConditionalGeneration:
    """One model of each kind; tests leave it as it is."""
    return make_seq2seq(**kind)


def other(tokens: Tensor) -> Tensor:
    """Tokens all of which differ from the given ones."""
    return (tokens - 2) % 47 + 3


@torch.no_grad()
@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_of_source_and_target_changes_nothing(model, side):
    sources, targets = [ids(7), ids(3), ids(5)], [ids(2), ids(6), ids(4)]
    input_ids, attention_mask = padded(sources, side)
    decoder_input_ids, decoder_attention_mask = padded(targets, side)
    batch = model(
        input_ids,
        attention_mask=attention_mask,
        decoder_input_ids=decoder_input_ids,
        decoder_attention_mask=decoder_attention_mask,
    ).logits
    for i, mask in enumerate(decoder_attention_mask.bool()):
        alone = model(sources[i][None], decoder_input_ids=targets[i][None]).logits[0]
        torch.testing.assert_close(batch[i][mask], alone, **CLOSE)


@torch.no_grad()
def test_right_padding_of_the_target_needs_no_mask(model):
    source, targets = ids(2, 5), [ids(6), ids(4)]
    decoder_input_ids, mask = padded(targets, "right")
    logits = model(source, decoder_input_ids=decoder_input_ids).logits
    masked = model(source, decoder_input_ids=decoder_input_ids, decoder_attention_mask=mask).logits
    torch.testing.assert_close(logits[mask.bool()], masked[mask.bool()], **CLOSE)


@torch.no_grad()
def test_no_target_position_sees_a_later_one(model):
    source, target = ids(1, 5), ids(1, 8)
    changed = target.clone()
    changed[0, 5] = other(changed[0, 5])
    before, after = (model(source, decoder_input_ids=x).logits for x in (target, changed))
    torch.testing.assert_close(after[:, :5], before[:, :5], **CLOSE)
    assert ((after - before)[:, 5:].abs().amax(-1) > 1e-4).all()  # and every later one sees it


@torch.no_grad()
def test_every_source_position_sees_every_other_and_every_target_position_sees_them_all(model):
    source, target = ids(1, 5), ids(1, 4)
    before = model(source, decoder_input_ids=target)
    for i in range(5):
        changed = source.clone()
        changed[0, i] = other(changed[0, i])
        after = model(changed, decoder_input_ids=target)
        encoded = after.encoder_last_hidden_state - before.encoder_last_hidden_state
        assert (encoded.abs().amax(-1) > 1e-4).all()
        assert ((after.logits - before.logits).abs().amax(-1) > 1e-4).all()


@torch.no_grad()
def test_eager_equals_sdpa(kind, model, make_seq2seq):
    eager = make_seq2seq(**kind, attn_implementation="eager")
    eager.load_state_dict(model.state_dict())
    source, target = ids(2, 7), ids(2, 5)
    input_ids, attention_mask = padded([ids(7), ids(4)], "right")
    for inputs in ({"input_ids": source}, {"input_ids": input_ids, "attention_mask": attention_mask}):
        expected, actual = (m(**inputs, decoder_input_ids=target).logits for m in (model, eager))
        torch.testing.assert_close(actual, expected, **CLOSE)


@torch.no_grad()
def test_embeddings_may_be_given_instead_of_ids(model):
    source, target = ids(2, 5), ids(2, 4)
    embed = model.get_input_embeddings()
    from_embeddings = model(inputs_embeds=embed(source), decoder_inputs_embeds=embed(target))
    torch.testing.assert_close(from_embeddings.logits, model(source, decoder_input_ids=target).logits)


@pytest.mark.parametrize(("inputs", "message"), [
    ({}, "either input_ids or inputs_embeds, and not both"),
    ({"input_ids": ids(1, 3), "inputs_embeds": torch.ones(1, 3, 24)}, "either input_ids or inputs_embeds, and not"),
    ({"input_ids": ids(1, 3)}, "either decoder_input_ids or decoder_inputs_embeds"),
])  # fmt: skip
def test_inputs_that_are_missing_or_given_twice(make_seq2seq, inputs, message):
    with pytest.raises(ValueError, match=message):
        make_seq2seq()(**inputs)


def test_a_decoder_needs_an_encoder(make_seq2seq):
    with pytest.raises(ValueError, match="give encoder_hidden_states"):
        make_seq2seq().model.decoder(input_ids=ids(1, 3))


@torch.no_grad()
def test_the_encoders_output_may_be_given(make_seq2seq):
    model, source, target = make_seq2seq(), ids(2, 5), ids(2, 4)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    expected = model(source, attention_mask=mask, decoder_input_ids=target).logits
    encoded = model.get_encoder()(source, attention_mask=mask)
    assert isinstance(encoded, BaseModelOutput)
    for encoder_outputs in (encoded, (encoded.last_hidden_state,)):
        output = model(encoder_outputs=encoder_outputs, attention_mask=mask, decoder_input_ids=target)
        torch.testing.assert_close(output.logits, expected)


@torch.no_grad()
@pytest.mark.parametrize(("keep", "positions"), [
    (0, slice(None)), (1, slice(-1, None)), (3, slice(-3, None)), (torch.tensor([0, 3]), [0, 3])
])  # fmt: skip
def test_logits_to_keep(make_seq2seq, keep, positions):
    model, source, target = make_seq2seq(), ids(2, 5), ids(2, 4)
    expected = model(source, decoder_input_ids=target).logits[:, positions]
    torch.testing.assert_close(model(source, decoder_input_ids=target, logits_to_keep=keep).logits, expected)


def test_labels_become_the_decoders_input(make_seq2seq):
    model = make_seq2seq(decoder_start_token_id=4, pad_token_id=3)
    labels = torch.tensor([[7, 8, 9, 2], [7, 2, -100, -100]])
    shifted = model.prepare_decoder_input_ids_from_labels(labels)
    assert shifted.tolist() == [[4, 7, 8, 9], [4, 7, 2, 3]]
    source = ids(2, 5)
    taught = model(source, labels=labels)
    assert torch.equal(taught.logits, model(source, decoder_input_ids=shifted).logits)
    own_input = model(source, labels=labels, decoder_input_ids=ids(2, 4))
    assert not torch.allclose(own_input.loss, taught.loss)


def test_the_collator_of_transformers_makes_the_same_batch(make_seq2seq):
    class PadWithZero:
        padding_side = "right"
        pad_token_id = 0

        def pad(self, features, **_):
            return {"input_ids": torch.stack([torch.tensor(f["input_ids"]) for f in features])}

    model = make_seq2seq()
    features = [{"input_ids": [5, 6], "labels": [7, 8, 2]}, {"input_ids": [9, 9], "labels": [7, 2]}]
    batch = DataCollatorForSeq2Seq(PadWithZero(), model=model)(features)
    assert batch["labels"].tolist() == [[7, 8, 2], [7, 2, -100]]
    assert batch["decoder_input_ids"].tolist() == [[1, 7, 8], [1, 7, 2]]
    torch.testing.assert_close(model(**batch).loss, model(batch["input_ids"], labels=batch["labels"]).loss)


def test_the_loss_is_torchs_at_the_labels_own_place(make_seq2seq):
    model, source, labels = make_seq2seq(label_smoothing=0.2), ids(3, 5), ids(3, 6)
    labels[1, 4:] = -100
    for training, smoothing in ((True, 0.2), (False, 0.0)):  # an evaluation loss is never smoothed
        output = model.train(training)(source, labels=labels, return_logits=True)
        expected = F.cross_entropy(output.logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
        torch.testing.assert_close(output.loss, expected)


def test_accumulated_halves_are_one_whole_batch(make_seq2seq):
    model, source, labels = make_seq2seq(label_smoothing=0.1).train(), ids(4, 5), ids(4, 6)
    labels[0, 2:], labels[3, 4:] = -100, -100  # halves of different weight
    num_items = (labels != -100).sum()
    whole = model(source, labels=labels).loss
    halves = [
        model(source[half], labels=labels[half], num_items_in_batch=num_items).loss
        for half in (slice(0, 2), slice(2, 4))
    ]
    torch.testing.assert_close(sum(halves), whole)


def test_a_cache_is_kept_only_where_it_is_of_use(make_seq2seq):
    model, source, target = make_seq2seq(), ids(2, 5), ids(2, 4)
    assert model(source, decoder_input_ids=target).past_key_values.get_seq_length() == 4
    assert model(source, decoder_input_ids=target, use_cache=False).past_key_values is None
    assert model(source, labels=target).past_key_values is None


def test_hidden_states_and_attentions(make_seq2seq):
    model = make_seq2seq(attn_implementation="eager", norm_position="pre", encoder_layers=3)
    source, target = ids(2, 5), ids(2, 4)
    output = model(source, decoder_input_ids=target, output_hidden_states=True, output_attentions=True)

    def shapes(name: str) -> list[tuple[int, ...]]:
        return [tuple(tensor.shape) for tensor in output[name]]

    assert shapes("encoder_hidden_states") == [(2, 5, 24)] * 4  # embeddings and three layers
    assert shapes("decoder_hidden_states") == [(2, 4, 24)] * 3
    assert shapes("encoder_attentions") == [(2, 4, 5, 5)] * 3
    assert shapes("decoder_attentions") == [(2, 4, 4, 4)] * 2
    assert shapes("cross_attentions") == [(2, 4, 4, 5)] * 2
    torch.testing.assert_close(output.encoder_hidden_states[-1], output.encoder_last_hidden_state)
    torch.testing.assert_close(model.lm_head(output.decoder_hidden_states[-1]), output.logits)
    for weights in (*output.encoder_attentions, *output.decoder_attentions, *output.cross_attentions):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    assert all(weights.triu(1).count_nonzero() == 0 for weights in output.decoder_attentions)
    assert all(weights.triu(1).count_nonzero() > 0 for weights in output.encoder_attentions)
    plain = model(source, decoder_input_ids=target)
    assert plain.encoder_hidden_states is plain.decoder_attentions is plain.cross_attentions is None


def test_what_is_recorded_is_part_of_the_graph(make_seq2seq):
    model = make_seq2seq(attn_implementation="eager")
    output = model(ids(2, 5), decoder_input_ids=ids(2, 4), output_hidden_states=True, output_attentions=True)
    recorded = (
        *output.encoder_hidden_states,
        *output.decoder_hidden_states[:-1],
        *output.encoder_attentions,
        *output.decoder_attentions,
        *output.cross_attentions,
    )
    for tensor in recorded:
        tensor.retain_grad()
    output.logits.square().sum().backward()
    assert all(tensor.grad is not None and tensor.grad.count_nonzero() for tensor in recorded)


def test_dropout_is_where_the_paper_puts_it(make_seq2seq):
    """On both sums of embeddings and positions, and on every sub-layer's output; not inside the sub-layers."""
    active = {name for name, m in make_seq2seq(dropout=0.1).named_modules() if isinstance(m, Dropout) and m.p > 0}
    sub_layers = {"encoder": ("self_attn", "mlp"), "decoder": ("self_attn", "cross_attn", "mlp")}
    assert active == {f"model.{stack}.dropout" for stack in sub_layers} | {
        f"model.{stack}.layers.{i}.{sub_layer}_residual.dropout"
        for stack, names in sub_layers.items()
        for i in (0, 1)
        for sub_layer in names
    }


@pytest.mark.parametrize("scale_embedding", [True, False])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_what_enters_the_first_block(make_seq2seq, stack, scale_embedding):
    model, tokens, entering = make_seq2seq(scale_embedding=scale_embedding), ids(1, 5), []
    module = getattr(model.model, stack)
    module.dropout.register_forward_hook(lambda _, args, output: entering.append(args[0]))
    model(tokens, decoder_input_ids=tokens)
    embedded = module.embed_tokens.weight[tokens] * (24**0.5 if scale_embedding else 1)
    torch.testing.assert_close(entering, [module.positions.add_to(embedded, torch.arange(5)[None])])


def weights(model: PaperformerForConditionalGeneration) -> tuple[Tensor, Tensor, Tensor]:
    return model.model.encoder.embed_tokens.weight, model.model.decoder.embed_tokens.weight, model.lm_head.weight


@pytest.mark.parametrize("tie_word_embeddings", [True, False])
@pytest.mark.parametrize("share_embeddings", [True, False])
def test_tying_holds_through_saving_loading_and_resizing(make_seq2seq, tmp_path, share_embeddings, tie_word_embeddings):
    model = make_seq2seq(share_embeddings=share_embeddings, tie_word_embeddings=tie_word_embeddings)

    def check(model: PaperformerForConditionalGeneration, vocab_size: int) -> None:
        encoder, decoder, output = weights(model)
        assert (encoder is decoder, decoder is output) == (share_embeddings, tie_word_embeddings)
        assert encoder is not output or (share_embeddings and tie_word_embeddings)
        assert {tuple(weight.shape) for weight in weights(model)} == {(vocab_size, 24)}
        tensors = 3 - share_embeddings - tie_word_embeddings
        assert len({id(weight) for weight in weights(model)}) == tensors
        ids_beyond = torch.full((1, 3), vocab_size - 1)
        assert model(ids_beyond, decoder_input_ids=ids_beyond).logits.shape == (1, 3, vocab_size)

    check(model, 50)
    before = [weight.detach().clone() for weight in weights(model)]
    model.resize_token_embeddings(61, mean_resizing=False)
    check(model, 61)
    assert model.config.vocab_size == 61
    assert all(torch.equal(new[:50], old) for new, old in zip(weights(model), before, strict=True))
    model.save_pretrained(tmp_path)
    loaded = PaperformerForConditionalGeneration.from_pretrained(tmp_path)
    check(loaded, 61)
    assert all(map(torch.equal, weights(loaded), weights(model)))
    loaded.resize_token_embeddings(pad_to_multiple_of=16)
    check(loaded, 64)


def test_shared_embeddings_learn_from_all_their_uses(make_seq2seq):
    model = make_seq2seq().train()
    model(torch.tensor([[5, 6]]), labels=torch.tensor([[7, 8]])).loss.backward()
    gradient = model.get_input_embeddings().weight.grad
    assert gradient[[5, 7, 1]].abs().sum(-1).all()  # a source token, a target token, and the start token
    assert gradient[40].abs().sum() > 0  # as an output


def test_new_embeddings_are_set_for_both_languages(make_seq2seq):
    for share_embeddings in (True, False):
        model, embeddings = make_seq2seq(share_embeddings=share_embeddings), torch.nn.Embedding(50, 24)
        model.set_input_embeddings(embeddings)
        assert model.get_input_embeddings() is model.model.encoder.embed_tokens is embeddings
        assert (model.model.decoder.embed_tokens is embeddings) is share_embeddings


def test_each_stack_has_its_own_part_of_the_tensor_parallel_plan(make_seq2seq):
    model = make_seq2seq()
    whole, encoder, decoder = (part._tp_plan for part in (model.model, model.model.encoder, model.model.decoder))
    assert {f"encoder.{name}" for name in encoder} | {f"decoder.{name}" for name in decoder} == whole.keys()
    assert "layers.*.cross_attn.q_proj" in decoder.keys() - encoder.keys()


def test_the_output_may_have_a_bias(make_seq2seq):
    model, plain, input_ids = make_seq2seq(output_bias=True), make_seq2seq(), ids(2, 5)
    assert plain.lm_head.bias is None
    with torch.no_grad():
        model.lm_head.bias.normal_()
    output, expected = (m(input_ids, decoder_input_ids=input_ids).logits for m in (model, plain))
    torch.testing.assert_close(output, expected + model.lm_head.bias)
    loss = model(input_ids, labels=input_ids, return_logits=True)
    torch.testing.assert_close(loss.loss, F.cross_entropy(loss.logits.flatten(0, 1), input_ids.flatten()))


TWO_VOCABULARIES = {"vocab_size": 50, "source_vocab_size": 70, "share_embeddings": False}


def source_ids(*shape: int) -> Tensor:
    """Of the source's 20 tokens that the target's vocabulary does not have."""
    return torch.randint(50, 70, shape)


@pytest.mark.parametrize("tie_word_embeddings", [True, False])
def test_each_language_may_have_its_vocabulary(make_seq2seq, tmp_path, tie_word_embeddings):
    model = make_seq2seq(**TWO_VOCABULARIES, tie_word_embeddings=tie_word_embeddings)
    model.save_pretrained(tmp_path)
    source, target = source_ids(2, 5), ids(2, 4)
    for one in (model, PaperformerForConditionalGeneration.from_pretrained(tmp_path)):
        encoder, decoder, output = weights(one)
        assert [tuple(weight.shape) for weight in (encoder, decoder, output)] == [(70, 24), (50, 24), (50, 24)]
        assert (decoder is output) == tie_word_embeddings
        assert one.get_input_embeddings() is one.get_encoder().get_input_embeddings() is one.model.encoder.embed_tokens
        assert one.get_decoder().get_input_embeddings() is one.model.decoder.embed_tokens
        logits = one(source, decoder_input_ids=target).logits
        assert logits.shape == (2, 4, 50)
        torch.testing.assert_close(logits, model(source, decoder_input_ids=target).logits)
    assert all(map(torch.equal, weights(one), weights(model)))


def test_each_embedding_learns_from_its_language(make_seq2seq):
    model = make_seq2seq(**TWO_VOCABULARIES, tie_word_embeddings=False).train()
    model(torch.tensor([[55, 66]]), labels=torch.tensor([[7, 8]])).loss.backward()
    learning = [weight.grad.abs().sum(-1).nonzero().flatten().tolist() for weight in weights(model)]
    assert learning == [[55, 66], [1, 7], list(range(50))]  # the decoder's begins with the start token


@pytest.fixture(scope="module")
def as_one_vocabulary(make_seq2seq) -> list[PaperformerForConditionalGeneration]:
    """A model with two vocabularies, and the same function with a joint one, of which 20 tokens never come out."""
    options = {"tie_word_embeddings": False, "output_bias": True, "initializer_range": 0.5}
    two, one = (
        make_seq2seq(**TWO_VOCABULARIES, **options),
        make_seq2seq(vocab_size=70, share_embeddings=False, **options),
    )
    with torch.no_grad():
        two.lm_head.bias.normal_()
        for name, tensor in one.state_dict().items():
            given = two.state_dict()[name]
            tensor[: len(given)] = given
        one.lm_head.bias[50:] = -1e4
    return [two, one]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_beams": 3, "num_return_sequences": 2},
        {"cache_implementation": "static"},
        {"use_cache": False},
        {"num_beams": 3, "cache_implementation": "static"},
    ],
    ids=str,
)
def test_two_vocabularies_generate_what_a_joint_one_does(as_one_vocabulary, options):
    source, mask = source_ids(2, 6), torch.tensor([[1] * 6, [0, 0, 1, 1, 1, 1]])
    settings = {"max_new_tokens": 8, "no_repeat_ngram_size": 1, "eos_token_id": None, **options}
    generated, expected = (m.generate(source * mask, attention_mask=mask, **settings) for m in as_one_vocabulary)
    assert torch.equal(generated, expected)
    assert len(generated.unique()) > 10


def test_an_assistant_may_draft_for_two_vocabularies(as_one_vocabulary):
    model, source = as_one_vocabulary[0], source_ids(1, 6)
    assistant, settings = copy.deepcopy(model), {"max_new_tokens": 8, "eos_token_id": None, "do_sample": False}
    with torch.no_grad():
        for parameter in assistant.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    alone = model.generate(source, **settings)
    assert torch.equal(model.generate(source, assistant_model=assistant, **settings), alone)


def test_samples_are_of_the_targets_vocabulary(as_one_vocabulary):
    model, source = as_one_vocabulary[0], source_ids(1, 6)
    settings = {"do_sample": True, "top_k": 0, "num_return_sequences": 4, "max_new_tokens": 6, "eos_token_id": None}
    output = model.generate(source, **settings, output_logits=True, return_dict_in_generate=True)
    expected = model(source.expand(4, -1), decoder_input_ids=output.sequences[:, :-1]).logits
    assert expected.shape == (4, 6, 50)
    torch.testing.assert_close(torch.stack(output.logits, dim=1), expected, **CLOSE)


def test_resizing_is_for_a_joint_vocabulary(make_seq2seq):
    model = make_seq2seq(**TWO_VOCABULARIES)
    for part in (model, model.model, model.get_encoder(), model.get_decoder()):
        with pytest.raises(
            ValueError, match="source_vocab_size is 70 and vocab_size is 50; resize_token_embeddings is"
        ):
            part.resize_token_embeddings(61)


def test_where_it_was_loaded_from_is_remembered_without_secrets(make_seq2seq, tmp_path):
    model = make_seq2seq()
    assert model.hub_options == {}
    model.save_pretrained(tmp_path)
    where = {"revision": "main", "cache_dir": str(tmp_path)}
    loaded = PaperformerForConditionalGeneration.from_pretrained(tmp_path, **where, token="secret")
    assert loaded.hub_options == where
    loaded, report = PaperformerForConditionalGeneration.from_pretrained(tmp_path, **where, output_loading_info=True)
    assert loaded.hub_options == where
    assert not report["missing_keys"]
