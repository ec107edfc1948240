"""generate() of both families: caches, batches and padding change how it is computed, never what comes out."""

from collections import Counter

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache, StaticCache
from transformers.utils import ModelOutput

DECODING = {
    "greedy": {},
    "beam": {"num_beams": 3, "num_return_sequences": 2},
    "top-p": {"do_sample": True, "top_p": 0.8, "top_k": 0},
}


@pytest.fixture(scope="module")
def model(kind, make_model) -> PreTrainedModel:
    """One model of each family and kind; tests leave it as it is."""
    return make_model(**kind, tie_word_embeddings=False, initializer_range=0.5)


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """A long prompt (or source) and a short one, which is padded on the left as language models want it."""
    input_ids = torch.randint(3, 50, (2, 6))
    attention_mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
    return {"input_ids": input_ids * attention_mask, "attention_mask": attention_mask}


def generate(model: PreTrainedModel, inputs: dict[str, Tensor], decoding: str = "greedy", **options) -> ModelOutput:
    torch.manual_seed(0)
    lively = {"no_repeat_ngram_size": 1, "suppress_tokens": [0]}  # untrained models only repeat themselves
    settings = {"max_new_tokens": 6, "min_new_tokens": 4, "pad_token_id": 0, **lively, **DECODING[decoding], **options}
    return model.generate(**inputs, output_logits=True, return_dict_in_generate=True, **settings)


def assert_same(actual: ModelOutput, expected: ModelOutput) -> None:
    assert torch.equal(actual.sequences, expected.sequences)
    torch.testing.assert_close(actual.logits, expected.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("decoding", DECODING)
def test_cached_equals_uncached(model, batch, decoding):
    cached = generate(model, batch, decoding)
    uncached = generate(model, batch, decoding, use_cache=False)
    assert cached.past_key_values is not None
    assert uncached.past_key_values is None
    assert_same(cached, uncached)


def test_a_static_cache_equals_a_growing_one(model, batch):
    static = generate(model, batch, cache_implementation="static")
    cache = static.past_key_values
    assert isinstance(cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache, StaticCache)
    assert_same(static, generate(model, batch))


def test_a_batch_is_generated_as_its_rows_are(model, batch):
    together = generate(model, batch, eos_token_id=None).sequences[:, -6:]
    long = {name: tensor[:1] for name, tensor in batch.items()}
    short = {name: tensor[1:, 3:] for name, tensor in batch.items()}  # without its padding
    for i, alone in enumerate((long, short)):
        assert torch.equal(generate(model, alone, eos_token_id=None).sequences[0, -6:], together[i])


@pytest.mark.parametrize("decoding", DECODING)
def test_what_is_generated_differs_from_row_to_row_and_from_step_to_step(model, batch, decoding):
    """Or else the tests above would prove little."""
    generated = generate(model, batch, decoding, eos_token_id=None).sequences[:, -6:]
    assert not torch.equal(generated[0], generated[-1])
    assert all(len(row.unique()) == 6 for row in generated)


@pytest.mark.parametrize("decoding", DECODING)
def test_the_source_is_encoded_once(make_seq2seq, batch, decoding):
    """However many steps and beams follow, the encoder runs once and cross-attention projects its output once."""
    model, calls = make_seq2seq(), Counter()
    for name, module in model.named_modules():
        if name.endswith(("encoder", "k_proj", "v_proj")):
            module.register_forward_hook(lambda *_, name=name: calls.update([name]))
    steps = len(generate(model, batch, decoding, min_new_tokens=6).logits)
    assert steps == 6
    assert calls.pop("model.encoder") == 1
    expected = {name: 6 if ".decoder." in name and ".self_attn." in name else 1 for name in calls}
    assert calls == expected
    assert len(calls) == 2 * (2 + 2 + 2)  # keys and values of encoder, decoder and cross-attention, two layers each


def test_a_translation_starts_with_the_start_token_and_ends_after_the_end_token(make_seq2seq):
    model = make_seq2seq(decoder_start_token_id=4)
    with torch.no_grad():
        model.lm_head.weight[2] = 0  # </s> scores 0, which is neither very likely nor very unlikely
    sequences = model.generate(torch.randint(3, 50, (8, 5)), max_new_tokens=20, do_sample=True)
    assert (sequences[:, 0] == 4).all()
    ended = sequences.eq(2).cumsum(1).sub(sequences.eq(2).long()) > 0
    assert ended.any()
    assert (sequences[ended] == 0).all()


def test_a_decoder_prompt_may_be_padded_on_the_left(kind, make_seq2seq):
    model, source = make_seq2seq(**kind), torch.randint(3, 50, (2, 5))
    prompt = torch.randint(3, 50, (2, 4))
    prompt[1, :2] = 0
    mask = prompt.ne(0).long()
    options = {"max_new_tokens": 4, "eos_token_id": None, "num_beams": 1}
    together = model.generate(source, decoder_input_ids=prompt, decoder_attention_mask=mask, **options)
    alone = model.generate(source[1:], decoder_input_ids=prompt[1:, 2:], **options)
    assert together[1, -4:].tolist() == alone[0, -4:].tolist()
