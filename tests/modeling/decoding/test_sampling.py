"""Greedy decoding and sampling of our own against transformers': the same tokens, of fewer operations."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.generation import GenerationMixin, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from paperformer.modeling.decoding import sampling as module
from paperformer.modeling.decoding.sampling import SamplingMixin

from ...examples import examples

PAD, VOCAB = 0, 50


@pytest.fixture(scope="module")
def models(make_seq2seq, make_lm) -> dict[str, PreTrainedModel]:
    """In float64, so that what is added in another order does not change places."""
    options = {"tie_word_embeddings": False, "initializer_range": 0.5, "position_embedding_type": "rope"}
    return {
        "seq2seq": make_seq2seq(**options).double(),
        "lm": make_lm(**options).double(),
        "local": make_lm(**options, attention_window=3).double(),
        "bias": make_seq2seq(**options | {"position_embedding_type": "relative"}, output_bias=True).double(),
        "linear": make_lm(**options | {"position_embedding_type": "sinusoidal"}, linear_attention=True).double(),
    }


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


def generate(model: Any, batch: dict[str, Tensor], **options: Any) -> Any:
    torch.manual_seed(1)
    return model.generate(**batch, **options)


def generate_by_transformers(model: Any, batch: dict[str, Tensor], **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SamplingMixin, "_sample", GenerationMixin._sample)
        return generate(model, batch, **options)


@pytest.fixture
def searched(monkeypatch) -> list[int]:
    """How many rows each of our own searches began with."""
    seen: list[int] = []
    own: Callable[..., Tensor] = module.sample

    def sample(rows: Any, input_ids: Tensor, *args: Any) -> Tensor:
        seen.append(len(input_ids))
        return own(rows, input_ids, *args)

    monkeypatch.setattr(module, "sample", sample)
    return seen


OPTIONS = st.fixed_dictionaries(
    {
        "do_sample": st.booleans(),
        "max_new_tokens": st.integers(1, 9),
        "eos_token_id": st.none() | st.lists(st.integers(1, VOCAB - 1), min_size=1, max_size=20, unique=True),
        "pad_token_id": st.sampled_from([0, 7]),
    },
    optional={
        "no_repeat_ngram_size": st.just(2),
        "min_new_tokens": st.just(2),
        "repetition_penalty": st.just(1.3),
    },
)


@given(
    st.sampled_from(["seq2seq", "lm", "local", "bias", "linear"]),
    st.lists(st.integers(1, 6), min_size=1, max_size=5),
    OPTIONS,
)
@settings(max_examples=examples(40))
def test_tokens_are_those_of_transformers(models, name: str, lengths: list[int], options: dict[str, Any]) -> None:
    batch = make_batch(lengths, left=not models[name].config.is_encoder_decoder)
    expected = generate_by_transformers(models[name], batch, **options)
    assert generate(models[name], batch, **options).tolist() == expected.tolist()


def test_rows_leave_when_they_are_finished(models, monkeypatch) -> None:
    batch, model = make_batch([4, 2, 5, 3, 6], left=True), models["lm"]
    free = generate(model, batch, do_sample=False, max_new_tokens=8, eos_token_id=None)[:, 6:]
    sizes: list[int] = []
    forward = model.model.forward
    monkeypatch.setattr(
        model.model, "forward", lambda **inputs: sizes.append(len(inputs["input_ids"])) or forward(**inputs)
    )
    ends = [int(free[0, 1])]  # the first row's second token
    generate(model, batch, do_sample=False, max_new_tokens=8, eos_token_id=ends, pad_token_id=PAD)
    assert sizes[0] == 5
    assert sizes[-1] < 5
    assert sizes == sorted(sizes, reverse=True)


def test_a_stream_has_every_token(models, searched) -> None:
    class Recorder(BaseStreamer):
        def __init__(self) -> None:
            self.tokens: list[int] = []
            self.ended = False

        def put(self, value: Tensor) -> None:
            self.tokens += value.flatten().tolist()

        def end(self) -> None:
            self.ended = True

    for name, rest in (("lm", 0), ("seq2seq", 0)):
        batch, recorder = make_batch([4], left=True), Recorder()
        output = generate(models[name], batch, streamer=recorder, do_sample=False, max_new_tokens=5, eos_token_id=None)
        assert recorder.tokens[rest:] == output[0].tolist()
        assert recorder.ended
    assert searched == [1, 1]


@pytest.mark.parametrize(
    "options",
    [
        {"return_dict_in_generate": True, "output_scores": True},
        {"use_cache": False},
        {"cache_implementation": "static", "disable_compile": True},
    ],
    ids=str,
)
def test_what_it_cannot_do_transformers_does(models, searched, options: dict[str, Any]) -> None:
    batch = make_batch([3, 5], left=True)
    plain = {"do_sample": False, "max_new_tokens": 4, "eos_token_id": None}
    output = generate(models["lm"], batch, **plain, **options)
    assert searched == []
    output = output if isinstance(output, Tensor) else output.sequences
    assert output.tolist() == generate(models["lm"], batch, **plain).tolist()
    assert searched == [2]


def test_a_callers_cache_keeps_every_row(models, searched) -> None:
    cache = DynamicCache(config=models["lm"].config)
    generate(
        models["lm"],
        make_batch([3, 5], left=True),
        past_key_values=cache,
        do_sample=False,
        max_new_tokens=4,
        eos_token_id=list(range(1, 30)),
    )
    assert searched == []
    assert cache.layers[0].keys.shape[0] == 2


def test_rows_stay_where_a_criterion_may_tell_them_by_their_places(models) -> None:
    sizes: list[int] = []

    class Counter(StoppingCriteria):
        def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
            sizes.append(len(input_ids))
            return torch.zeros(len(input_ids), dtype=torch.bool)

    options = {"do_sample": False, "max_new_tokens": 8, "eos_token_id": list(range(1, 30)), "pad_token_id": PAD}
    criteria = StoppingCriteriaList([Counter()])
    batch = make_batch([3, 5, 4], left=True)
    output = generate(models["lm"], batch, stopping_criteria=criteria, **options)
    assert output.tolist() == generate_by_transformers(models["lm"], batch, **options).tolist()
    assert set(sizes) == {3}
