"""Beam search of our own against transformers': the same sequences, of fewer operations."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.generation import GenerationMixin

from paperformer.modeling.decoding import beam_search as module
from paperformer.modeling.decoding.beam_search import BeamSearchMixin

from ...examples import examples

PAD, VOCAB = 0, 50


@pytest.fixture(scope="module")
def models(make_seq2seq, make_lm) -> dict[str, PreTrainedModel]:
    """In float64, so that what is added in another order does not change places."""
    options = {"tie_word_embeddings": False, "initializer_range": 0.5, "position_embedding_type": "rope"}
    window = {"attention_window": 3}
    return {
        "seq2seq": make_seq2seq(**options).double(),
        "lm": make_lm(**options).double(),
        "local": make_lm(**options, **window).double(),
        "bias": make_seq2seq(**options | {"position_embedding_type": "relative"}, output_bias=True).double(),
    }


def generate(model: Any, batch: dict[str, Tensor], **options: Any) -> Any:
    return model.generate(**batch, do_sample=False, **options)


def generate_by_transformers(model: Any, batch: dict[str, Tensor], **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeamSearchMixin, "_beam_search", GenerationMixin._beam_search)
        return generate(model, batch, **options)


def make_batch(lengths: list[int], *, left: bool) -> dict[str, Tensor]:
    """Rows of random tokens, padded to the longest."""
    generator = torch.Generator().manual_seed(sum(lengths))
    ids = torch.full((len(lengths), max(lengths)), PAD)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        real = slice(max(lengths) - length, None) if left else slice(0, length)
        ids[row, real] = torch.randint(3, VOCAB, (length,), generator=generator)
        mask[row, real] = 1
    return {"input_ids": ids, "attention_mask": mask}


OPTIONS = st.fixed_dictionaries(
    {
        "num_beams": st.integers(2, 4),
        "length_penalty": st.sampled_from([-1.0, 0.0, 1.0, 2.0]),
        "early_stopping": st.sampled_from([False, True, "never"]),
        "max_new_tokens": st.integers(1, 9),
        "eos_token_id": st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=12, unique=True),
    },
    optional={
        "no_repeat_ngram_size": st.just(2),
        "min_new_tokens": st.just(1),
        "repetition_penalty": st.just(1.3),
        "pad_token_id": st.just(7),
        "num_return_sequences": st.just(2),
    },
)


@given(
    st.sampled_from(["seq2seq", "lm", "local", "bias"]), st.lists(st.integers(1, 6), min_size=1, max_size=4), OPTIONS
)
@settings(max_examples=examples(60))
def test_the_sequences_are_those_of_transformers_for_each_sentence_alone(
    models: dict[str, PreTrainedModel], name: str, lengths: list[int], options: dict[str, Any]
) -> None:
    model = models[name]
    batch = make_batch(lengths, left=not model.config.is_encoder_decoder)
    count = options.get("num_return_sequences", 1)
    actual = generate(model, batch, **options).unflatten(0, (-1, count))
    longest = 0
    for row, sequences in enumerate(actual):
        alone = {name: tensor[row : row + 1] for name, tensor in batch.items()}
        expected = generate_by_transformers(model, alone, **options)
        width = expected.shape[1]
        longest = max(longest, width)
        assert sequences[:, :width].tolist() == expected.tolist()
        fill = options.get("pad_token_id", model.generation_config.pad_token_id) or options["eos_token_id"][0]
        assert (sequences[:, width:] == fill).all()
    assert actual.shape[-1] == longest


def test_a_search_ends_at_the_longest_sequence_even_if_no_second_one_is_possible(
    models: dict[str, PreTrainedModel],
) -> None:
    def only_one(ids: Tensor, scores: Tensor) -> Tensor:
        allowed = torch.full_like(scores, -torch.inf)
        allowed[0, 9] = scores[0, 9]
        return allowed

    batch, options = make_batch([5], left=True), {"num_beams": 2, "max_new_tokens": 4, "logits_processor": [only_one]}
    actual = generate(models["lm"], batch, **options)
    assert actual[0, 5:].tolist() == [9, 9, 9, 9]
    assert actual.tolist() == generate_by_transformers(models["lm"], batch, **options).tolist()


def test_a_prompt_for_the_target_is_kept(models: dict[str, PreTrainedModel]) -> None:
    batch = make_batch([5, 2, 4], left=False) | {"decoder_input_ids": torch.tensor([[1, 9, 8], [1, 6, 4], [1, 3, 3]])}
    options = {"num_beams": 3, "max_new_tokens": 6, "eos_token_id": [2, 20, 30]}
    actual = generate(models["seq2seq"], batch, **options)
    assert actual.tolist() == generate_by_transformers(models["seq2seq"], batch, **options).tolist()
    assert actual[:, :3].tolist() == batch["decoder_input_ids"].tolist()


class Recorder:
    """How many rows each call of a decoder has, of ids and of the encoder's states."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.sources: list[int] = []

    def __call__(self, decoder: torch.nn.Module, arguments: tuple[Any, ...], inputs: dict[str, Any]) -> None:
        self.rows.append(len(inputs["input_ids"]))
        if inputs.get("encoder_hidden_states") is not None:
            self.sources.append(len(inputs["encoder_hidden_states"]))


@pytest.fixture(params=["seq2seq", "lm"])
def recorded(request: pytest.FixtureRequest, models: dict[str, PreTrainedModel]) -> Iterator[tuple[Any, Recorder]]:
    model: Any = models[request.param]
    recorder = Recorder()
    decoder = model.model.decoder if request.param == "seq2seq" else model.model
    handle = decoder.register_forward_pre_hook(recorder, with_kwargs=True)
    yield model, recorder
    handle.remove()


# A third of the vocabulary ends a sentence, so that some are finished early.
MANY_ENDS = {"num_beams": 3, "max_new_tokens": 12, "eos_token_id": list(range(1, VOCAB, 3)), "early_stopping": True}


def test_a_prompt_is_read_once_and_finished_sentences_leave(recorded: tuple[Any, Recorder]) -> None:
    model, recorder = recorded
    batch = make_batch([5, 1, 3, 6, 2, 4], left=not model.config.is_encoder_decoder)
    generate(model, batch, **MANY_ENDS)
    assert recorder.rows[:2] == [6, 18]
    assert recorder.rows[1:] == sorted(recorder.rows[1:], reverse=True)
    assert recorder.rows[-1] < 18
    if model.config.is_encoder_decoder:
        assert recorder.sources[1:] == [rows // 3 for rows in recorder.rows[1:]]


def test_where_something_changes_the_scores_rows_keep_their_places(recorded: tuple[Any, Recorder]) -> None:
    """What changes them may know a sentence by its row, as a function of allowed tokens does."""
    model, recorder = recorded
    batch = make_batch([5, 1, 3, 6], left=not model.config.is_encoder_decoder)
    allowed = [list(range(1 + row, VOCAB, 4)) for row in range(4)]
    options = MANY_ENDS | {"prefix_allowed_tokens_fn": lambda row, ids: allowed[row]}
    actual = generate(model, batch, **options)
    assert set(recorder.rows[1:]) == {12}
    assert actual.tolist() == generate_by_transformers(model, batch, **options).tolist()


@pytest.mark.parametrize(
    ("own", "options"),
    [
        (True, {}),
        (True, {"num_return_sequences": 3}),
        (True, {"no_repeat_ngram_size": 2}),
        (False, {"return_dict_in_generate": True, "output_scores": True}),
        (False, {"use_cache": False}),
        (False, {"cache_implementation": "static"}),
    ],
)
@pytest.mark.parametrize("name", ["seq2seq", "lm"])
def test_what_it_does_not_understand_is_left_to_transformers(
    models: dict[str, PreTrainedModel], monkeypatch: pytest.MonkeyPatch, name: str, own: bool, options: dict[str, Any]
) -> None:
    calls: list[int] = []
    search = module.beam_search
    monkeypatch.setattr(module, "beam_search", lambda *arguments: calls.append(1) or search(*arguments))
    batch = make_batch([3, 2], left=name == "lm")
    actual = generate(models[name], batch, num_beams=3, max_new_tokens=4, **options)
    assert bool(calls) == own
    sequences = actual if isinstance(actual, Tensor) else actual.sequences
    expected = generate_by_transformers(models[name], batch, num_beams=3, max_new_tokens=4, **options)
    assert sequences.tolist() == (expected if isinstance(expected, Tensor) else expected.sequences).tolist()


def test_a_cache_that_is_not_empty_is_left_to_transformers(models: dict[str, PreTrainedModel]) -> None:
    model: Any = models["lm"]
    batch = make_batch([4, 4], left=True)
    cache = DynamicCache(config=model.config)
    twice = {name: tensor.repeat_interleave(2, 0) for name, tensor in batch.items()}
    model(input_ids=twice["input_ids"][:, :3], past_key_values=cache)
    fresh = generate(model, batch, num_beams=2, max_new_tokens=4)
    assert generate(model, batch, num_beams=2, max_new_tokens=4, past_key_values=cache).tolist() == fresh.tolist()


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_rows_that_share_a_source_attend_as_if_each_had_its_own(make_seq2seq, implementation: str) -> None:
    model = make_seq2seq(position_embedding_type="alibi").double()
    model.set_attn_implementation(implementation)
    source = make_batch([5, 2], left=False)
    states = model.model.encoder(**source).last_hidden_state
    targets = torch.randint(3, VOCAB, (6, 4))
    options = {"output_attentions": implementation == "eager"}
    shared = model.model.decoder(
        targets, encoder_hidden_states=states, encoder_attention_mask=source["attention_mask"], **options
    )
    own = model.model.decoder(
        targets,
        encoder_hidden_states=states.repeat_interleave(3, 0),
        encoder_attention_mask=source["attention_mask"].repeat_interleave(3, 0),
        **options,
    )
    torch.testing.assert_close(shared.last_hidden_state, own.last_hidden_state)
    if implementation == "eager":
        torch.testing.assert_close(shared.cross_attentions, own.cross_attentions)


def test_the_source_is_kept_once_a_sentence(
    models: dict[str, PreTrainedModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[EncoderDecoderCache] = []
    follow = module.Beams.follow

    def spy(beams: Any, *arguments: Any) -> None:
        follow(beams, *arguments)
        seen.append(beams.cache)
        assert len(beams.cache.cross_attention_cache.layers[0].keys) * 3 == len(beams.new_ids)
        assert len(beams.cache.self_attention_cache.layers[0].keys) == len(beams.new_ids)

    monkeypatch.setattr(module.Beams, "follow", spy)
    generate(models["seq2seq"], make_batch([5, 2, 4], left=False), **MANY_ENDS)
    assert len(seen) > 1


def test_a_model_whose_weights_are_sharded_searches_as_before(models: dict[str, PreTrainedModel]) -> None:
    """By transformers' loop, which calls the whole model: only then does FSDP2 gather the weights of all its parts."""
    batch, options = make_batch([3, 2], left=True), {"num_beams": 3, "max_new_tokens": 4}
    expected = generate(models["lm"], batch, **options)
    sharded = copy.deepcopy(models["lm"])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(sharded, mesh=init_device_mesh("cpu", (1,)))
        assert generate(sharded, batch, **options).tolist() == expected.tolist()
    finally:
        dist.destroy_process_group()
