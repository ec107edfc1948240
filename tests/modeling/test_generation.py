"""generate() of both families: caches, batches, padding and drafts change how it is computed, never what comes out."""

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters
from transformers import CompileConfig, PreTrainedModel, cache_utils
from transformers.cache_utils import DynamicCache, EncoderDecoderCache, QuantizedCache, StaticCache
from transformers.utils import ModelOutput

# Every way to tell order, and every option that changes what a cache holds or who sees whom; places of the norms vary.
VARIANTS: dict[str, dict[str, Any]] = {
    "sinusoidal": {"position_embedding_type": "sinusoidal", "norm_position": "post"},
    "learned": {"position_embedding_type": "learned", "norm_position": "pre"},
    "rope": {"position_embedding_type": "rope", "norm_position": "peri", "qk_norm": True},
    "alibi": {"position_embedding_type": "alibi", "norm_position": "post"},
    "relative": {"position_embedding_type": "relative", "norm_position": "pre"},
    "none": {"position_embedding_type": "none", "norm_position": "peri"},
    "linear": {"position_embedding_type": "sinusoidal", "linear_attention": True},
    "local": {"position_embedding_type": "rope", "attention_window": 3},
    "local-alibi": {"position_embedding_type": "alibi", "attention_window": 3},
    "local-relative": {"position_embedding_type": "relative", "attention_window": 4, "num_key_value_heads": 1},
    "narrow": {"position_embedding_type": "rope", "attention_window": 1},
    "strided": {"position_embedding_type": "relative", "attention_window": 2, "attention_stride": 3},
}
DECODING = {
    "greedy": {},
    "beam": {"num_beams": 3, "num_return_sequences": 2},
    "top-p": {"do_sample": True, "top_p": 0.8, "top_k": 0},
}
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
NEW = 6  # tokens to generate


PROOFS = {"learned", "alibi", "none", "local", "local-relative", "narrow"}  # of which each is like one of the others


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.proof) if name in PROOFS else name for name in VARIANTS],
)
def kind(request: pytest.FixtureRequest) -> dict[str, Any]:
    return VARIANTS[request.param]


@pytest.fixture(scope="module")
def model(kind, make_model) -> PreTrainedModel:
    """One model of each family and kind; tests leave it as it is."""
    return make_model(**kind, tie_word_embeddings=False, initializer_range=0.5)


@pytest.fixture(scope="module")
def lm(kind, make_lm) -> PreTrainedModel:
    return make_lm(**kind, tie_word_embeddings=False, initializer_range=0.5)


@pytest.fixture(scope="module")
def seq2seq(kind, make_seq2seq) -> PreTrainedModel:
    return make_seq2seq(**kind, tie_word_embeddings=False, initializer_range=0.5)


@pytest.fixture
def batch() -> dict[str, Tensor]:
    """A long prompt (or source) and a short one, which is padded on the left as language models want it."""
    input_ids = torch.randint(3, 50, (2, 6))
    attention_mask = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 0, 1, 1, 1]])
    return {"input_ids": input_ids * attention_mask, "attention_mask": attention_mask}


def generate(model: PreTrainedModel, inputs: dict[str, Any], decoding: str = "greedy", **options) -> ModelOutput:
    torch.manual_seed(0)
    lively = {"no_repeat_ngram_size": 1, "suppress_tokens": [0]}  # untrained models only repeat themselves
    settings = {"max_new_tokens": NEW, "min_new_tokens": 4, "pad_token_id": 0, **lively, **DECODING[decoding]}
    return model.generate(**inputs, output_logits=True, return_dict_in_generate=True, **(settings | options))


def assert_same(actual: ModelOutput, expected: ModelOutput) -> None:
    assert torch.equal(actual.sequences, expected.sequences)
    torch.testing.assert_close(actual.logits, expected.logits, **CLOSE)


@torch.no_grad()
def logits_of(model: PreTrainedModel, inputs: dict[str, Tensor], sequences: Tensor) -> Tensor:
    """Logits of all that follows the prompt in (B, T) sequences: one pass over the text, without a cache."""
    if model.config.is_encoder_decoder:
        return model(**inputs, decoder_input_ids=sequences[:, :-1], use_cache=False).logits
    new = sequences.shape[1] - inputs["input_ids"].shape[1]
    attention_mask = torch.nn.functional.pad(inputs["attention_mask"], (0, new - 1), value=1)
    logits = model(sequences[:, :-1], attention_mask=attention_mask, use_cache=False).logits
    return logits[:, -new:]


def own_cache(output: ModelOutput) -> cache_utils.Cache:
    cache = output.past_key_values
    return cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache


# Decoding: what is drawn from the model's logits


def test_greedy_steps_are_what_one_pass_over_the_text_says(model, batch):
    output = generate(model, batch, eos_token_id=None, min_new_tokens=None, no_repeat_ngram_size=0)
    expected = logits_of(model, batch, output.sequences)
    torch.testing.assert_close(torch.stack(output.logits, dim=1), expected, **CLOSE)
    expected[:, :, 0] = -torch.inf  # the suppressed token
    assert torch.equal(output.sequences[:, -NEW:], expected.argmax(-1))


def keep_top_k(p: Tensor) -> Tensor:
    return p * (p >= p.sort(descending=True).values[:, 4:5])


def keep_top_p(p: Tensor) -> Tensor:
    ordered, indices = p.sort(descending=True)
    wanted = ordered.cumsum(-1) - ordered < 0.7  # as long as those before do not reach it
    return p * torch.zeros_like(wanted).scatter(1, indices, wanted)


SAMPLING: dict[str, tuple[dict[str, Any], Callable[[Tensor], Tensor]]] = {
    "temperature": ({"temperature": 2.0}, lambda p: p**0.5),
    "top-k": ({"top_k": 5}, keep_top_k),
    "top-p": ({"top_p": 0.7}, keep_top_p),
    "min-p": ({"min_p": 0.1}, lambda p: p * (p >= 0.1 * p.amax(-1, keepdim=True))),
    "temperature, then top-k": ({"temperature": 0.5, "top_k": 5}, lambda p: keep_top_k(p**2)),
}


@pytest.mark.parametrize(("options", "restrict"), SAMPLING.values(), ids=SAMPLING)
def test_tokens_are_drawn_from_the_distribution_that_the_options_define(make_model, options, restrict):
    model, prompt = make_model(), torch.randint(3, 50, (1, 5))
    neutral = {"do_sample": True, "top_k": 0, "top_p": 1.0, "max_new_tokens": 2, "num_return_sequences": 3000}
    output = model.generate(
        prompt, **(neutral | options), output_scores=True, output_logits=True, return_dict_in_generate=True
    )
    expected = [restrict(logits.softmax(-1)) for logits in output.logits]
    expected = [p / p.sum(-1, keepdim=True) for p in expected]
    for scores, p in zip(output.scores, expected, strict=True):
        torch.testing.assert_close(scores.softmax(-1), p)
        assert (p > 0).sum(-1).float().mean() > 1.5  # or else there was nothing to draw
    drawn = output.sequences[:, -2].bincount(minlength=50) / 3000
    assert (drawn - expected[0][0]).abs().sum() / 2 < 0.05  # total variation; about 0.02 by chance


def until_the_end(row: Tensor) -> tuple[int, ...]:
    tokens = row.tolist()
    return tuple(tokens[: tokens.index(2) + 1] if 2 in tokens else tokens)


def test_a_wide_beam_finds_the_best_of_all_sequences(make_model):
    """Five tokens, at most three of them: every continuation is scored by hand, sum of log p / length^penalty."""
    model, prompt = make_model(vocab_size=5, max_position_embeddings=8), torch.tensor([[3, 4, 3]])
    continuations = torch.tensor(list(itertools.product(range(5), repeat=3)))
    inputs = {"input_ids": prompt.expand(len(continuations), -1)}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    start = continuations.new_ones(len(continuations), 1) if model.config.is_encoder_decoder else inputs["input_ids"]
    log_p = logits_of(model, inputs, torch.cat((start, continuations), dim=1)).log_softmax(-1)
    log_p = log_p.gather(2, continuations[..., None])[..., 0]
    totals = {text: log_p[i, : len(text)].sum().item() for i, text in enumerate(map(until_the_end, continuations))}
    lengths = []
    for penalty in (-1.0, 0.0, 0.6, 1.0, 2.0):
        scores = {text: total / len(text) ** penalty for text, total in totals.items()}
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:8]
        wide = {"num_beams": 50, "num_return_sequences": 8, "early_stopping": "never", "length_penalty": penalty}
        output = model.generate(prompt, **wide, max_new_tokens=3, output_scores=True, return_dict_in_generate=True)
        assert [until_the_end(row) for row in output.sequences[:, -3:]] == best
        torch.testing.assert_close(output.sequences_scores.tolist(), [scores[text] for text in best], **CLOSE)
        lengths.append(sum(map(len, best)))
    assert lengths == sorted(lengths)  # a greater penalty (a greater divisor of what is negative) is for longer texts
    assert lengths[0] < lengths[-1]


def test_the_score_of_a_beam_is_its_log_probability_by_its_length(model, batch):
    penalty = 0.7
    output = generate(model, batch, num_beams=4, num_return_sequences=3, length_penalty=penalty, output_scores=True)
    repeated = {name: tensor.repeat_interleave(3, dim=0) for name, tensor in batch.items()}
    new = output.sequences[:, 1 if model.config.is_encoder_decoder else 6 :]
    log_p = logits_of(model, repeated, output.sequences).log_softmax(-1).gather(2, new[..., None])[..., 0]
    real = new.eq(2).cumsum(1).sub(new.eq(2).long()) == 0  # up to the end token
    expected = (log_p * real).sum(1) / real.sum(1) ** penalty
    torch.testing.assert_close(output.sequences_scores, expected, **CLOSE)
    scores = output.sequences_scores.view(2, 3)
    assert (scores.diff(dim=1) <= 0).all()
    assert all(len(rows.unique(dim=0)) == 3 for rows in new.view(2, 3, -1))


# Constraints and prompts


@pytest.mark.parametrize("decoding", ["greedy", "beam"])
def test_only_allowed_tokens_come_out(make_model, batch, decoding):
    """Row 0 counts upwards by one or two, row 1 stays with multiples of seven."""
    model = make_model()

    def allowed(row: int, tokens: Tensor) -> list[int]:
        last = int(tokens[-1])
        return [last % 40 + 3, last % 40 + 4] if row == 0 else [7, 14, 21, 28, 35, 42]

    options = {"no_repeat_ngram_size": 0, "eos_token_id": None}
    free = generate(model, batch, decoding, **options).sequences
    bound = generate(model, batch, decoding, prefix_allowed_tokens_fn=allowed, **options).sequences
    rows = [0, 1] if decoding == "greedy" else [0, 0, 1, 1]
    for sequences, obeys in ((bound, True), (free, False)):
        steps = [
            int(tokens[i]) in allowed(row, tokens[:i])
            for row, tokens in zip(rows, sequences, strict=True)
            for i in range(sequences.shape[1] - NEW, sequences.shape[1])
        ]
        assert all(steps) is obeys


@pytest.mark.parametrize("decoding", DECODING)
def test_a_language_tag_comes_first(make_seq2seq, batch, decoding):
    model = make_seq2seq()
    tagged = generate(model, batch, decoding, forced_bos_token_id=9, max_new_tokens=NEW + 1)
    assert (tagged.sequences[:, 1] == 9).all()
    if decoding == "greedy":  # the rest is as if the decoder had been given the tag
        given = generate(model, batch | {"decoder_input_ids": torch.tensor([[1, 9], [1, 9]])})
        assert torch.equal(given.sequences, tagged.sequences)
        torch.testing.assert_close(given.logits, tagged.logits[1:], **CLOSE)


def test_what_is_given_is_continued(model, batch):
    """A prompt of the language model, the beginning of a translation: cut anywhere, the rest comes out again."""
    whole = generate(model, batch, eos_token_id=None)
    cut = whole.sequences[:, :-2]
    if model.config.is_encoder_decoder:
        inputs = batch | {"decoder_input_ids": cut}
    else:
        inputs = {"input_ids": cut, "attention_mask": torch.nn.functional.pad(batch["attention_mask"], (0, 4), value=1)}
    rest = generate(model, inputs, eos_token_id=None, max_new_tokens=2, min_new_tokens=None)
    assert torch.equal(rest.sequences, whole.sequences)
    torch.testing.assert_close(rest.logits, whole.logits[-2:], **CLOSE)


# Assisted decoding: a draft is checked in one pass


def passes(model: PreTrainedModel, function: Callable[[], ModelOutput]) -> tuple[ModelOutput, int]:
    """What the function returns, and how often the model ran."""
    calls = Counter[str]()
    handle = model.register_forward_hook(lambda *_: calls.update(["pass"]))
    output = function()
    handle.remove()
    return output, calls["pass"]


@pytest.mark.parametrize("draft", ["itself", "another"])
def test_an_assistant_changes_the_number_of_passes_only(model, draft):
    inputs = {"input_ids": torch.randint(3, 50, (1, 6))}
    assistant = copy.deepcopy(model)
    assistant.generation_config.num_assistant_tokens = 4
    if draft == "another":  # near enough for some of its tokens to be right, and some wrong: caches are rolled back
        with torch.no_grad():
            for parameter in assistant.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.02)
    options = {"max_new_tokens": 10, "min_new_tokens": 10, "eos_token_id": None}
    alone, steps = passes(model, lambda: generate(model, inputs, **options))
    assisted, fewer = passes(model, lambda: generate(model, inputs, assistant_model=assistant, **options))
    assert_same(assisted, alone)
    assert steps == 10
    assert fewer <= (5 if draft == "itself" else 9)
    assert own_cache(assisted).get_seq_length() == own_cache(alone).get_seq_length()


def test_looking_up_the_prompt_changes_the_number_of_passes_only(lm):
    inputs = {"input_ids": torch.randint(3, 6, (1, 8))}
    options = {
        "max_new_tokens": 16,
        "eos_token_id": None,
        "no_repeat_ngram_size": 0,
        "suppress_tokens": [0, 1, 2, *range(6, 50)],  # with three words to say, some come back and some do not
    }
    alone, steps = passes(lm, lambda: generate(lm, inputs, **options))
    looked_up, fewer = passes(lm, lambda: generate(lm, inputs, prompt_lookup_num_tokens=3, **options))
    assert_same(looked_up, alone)
    assert fewer < steps == 16


# Caches


@pytest.mark.parametrize("decoding", DECODING)
def test_cached_equals_uncached(model, batch, decoding):
    cached = generate(model, batch, decoding)
    uncached = generate(model, batch, decoding, use_cache=False)
    assert cached.past_key_values is not None
    assert uncached.past_key_values is None
    assert_same(cached, uncached)


@pytest.mark.parametrize("decoding", ["greedy", "beam"])
def test_a_static_cache_equals_a_growing_one(model, batch, decoding):
    static = generate(model, batch, decoding, cache_implementation="static")
    assert isinstance(own_cache(static), StaticCache)
    assert_same(static, generate(model, batch, decoding))


@pytest.mark.parametrize("cache_implementation", [None, "static"])
def test_stacks_may_differ_in_depth(make_seq2seq, batch, cache_implementation):
    for encoder_layers, decoder_layers in ((1, 3), (3, 1)):
        model = make_seq2seq(encoder_layers=encoder_layers, decoder_layers=decoder_layers)
        cached = generate(model, batch, cache_implementation=cache_implementation)
        assert_same(cached, generate(model, batch, use_cache=False))
        assert len(own_cache(cached).layers) == decoder_layers


COMPILED: dict[str, tuple[str, dict[str, Any]]] = {
    "lm": ("make_lm", VARIANTS["local-alibi"] | {"num_hidden_layers": 1}),
    "seq2seq": ("make_seq2seq", VARIANTS["linear"] | {"encoder_layers": 1, "decoder_layers": 1}),
}


@pytest.mark.proof
@pytest.mark.parametrize("family", COMPILED)
def test_a_compiled_step_is_compiled_once(request, batch, family):
    """In one graph, for all lengths and for the next text, with padding, from which positions are counted in it."""
    make, options = COMPILED[family]
    model = request.getfixturevalue(make)(**options, tie_word_embeddings=False)
    compile_config = CompileConfig(fullgraph=True, backend="eager", mode=None)
    compile_config._compile_all_devices = True
    inputs = [
        batch,
        batch | {"input_ids": batch["input_ids"].flip(0), "attention_mask": batch["attention_mask"].flip(0)},
    ]
    if family == "seq2seq":
        inputs = [one | {f"decoder_{name}": tensor[:, :4] for name, tensor in batch.items()} for one in inputs]
    settings = {"max_new_tokens": 8, "eos_token_id": None}
    expected = [generate(model, one, **settings) for one in inputs]
    torch._dynamo.reset()
    counters.clear()
    settings |= {"cache_implementation": "static", "compile_config": compile_config}
    assert_same(generate(model, inputs[0], **settings), expected[0])
    # After the first step a sliding cache's offset is known to change; from then on nothing is.
    assert counters["stats"]["unique_graphs"] == (2 if "attention_window" in options else 1)
    with torch._dynamo.config.patch(error_on_recompile=True):
        assert_same(generate(model, inputs[1], **settings), expected[1])
    assert counters["graph_break"] == {}


@torch.no_grad()
@pytest.mark.skipif(not hasattr(cache_utils, "Fp8QuantizedLayer"), reason="this transformers has no 8-bit cache")
@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
def test_a_quantized_cache_stays_close(make_lm, name):
    """Keys and values in 8 bits, 3 of them for the fraction, do some hundredths of the harm of having none."""
    model, input_ids = make_lm(**VARIANTS[name], initializer_range=0.1), torch.randint(3, 50, (2, 12))
    cache = QuantizedCache("fp8", model.config)
    first = model(input_ids[:, :4], past_key_values=cache, use_cache=True).logits
    steps = [first, *(model(input_ids[:, [i]], past_key_values=cache, use_cache=True).logits for i in range(4, 12))]
    exact = model(input_ids).logits
    alone = model(input_ids, attention_mask=torch.eye(12, dtype=torch.bool).expand(2, 1, 12, 12)).logits
    error, harm = ((logits - exact).square().mean().sqrt() for logits in (torch.cat(steps, dim=1), alone))
    assert 1e-4 * harm < error < 0.1 * harm
    options = {"cache_implementation": "quantized", "cache_config": {"backend": "fp8"}}
    for decoding in DECODING:
        output = generate(model, {"input_ids": input_ids}, decoding, eos_token_id=None, **options)
        assert output.past_key_values.get_seq_length() == 12 + NEW - 1
        assert output.past_key_values.layers[0]._quantized_keys[0].dtype == torch.float8_e4m3fn


@pytest.mark.parametrize("static", [False, True])
def test_a_conversation_goes_on_from_its_cache(model, batch, static):
    """Generate, append what is said next, generate again: as if all of it had been one prompt."""
    said = torch.randint(3, 50, (2, 3))
    seq2seq = model.config.is_encoder_decoder
    options = {"eos_token_id": None, "no_repeat_ngram_size": 0}

    def fresh() -> cache_utils.Cache:
        cache = StaticCache(model.config, 32) if static else DynamicCache(config=model.config)
        return EncoderDecoderCache(cache, DynamicCache(config=model.config)) if seq2seq else cache

    first = generate(model, batch, past_key_values=fresh(), **options)
    text = torch.cat((first.sequences, said), dim=1)
    if seq2seq:
        inputs = batch | {"decoder_input_ids": text, "decoder_attention_mask": torch.ones_like(text)}
    else:
        mask = torch.nn.functional.pad(batch["attention_mask"], (0, text.shape[1] - 6), value=1)
        inputs = {"input_ids": text, "attention_mask": mask}
    expected = generate(model, inputs, **options)
    runs: list[int] = []
    handle = model.get_decoder().register_forward_pre_hook(
        lambda _, args, kwargs: runs.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    assert_same(generate(model, inputs, past_key_values=first.past_key_values, **options), expected)
    handle.remove()
    assert runs == [1 + 3, 1, 1, 1, 1, 1]  # the last token of the first answer has not been read yet


# Padding


def test_a_batch_is_generated_as_its_rows_are(model, batch):
    together = generate(model, batch, eos_token_id=None).sequences[:, -NEW:]
    long = {name: tensor[:1] for name, tensor in batch.items()}
    short = {name: tensor[1:, 3:] for name, tensor in batch.items()}  # without its padding
    for i, alone in enumerate((long, short)):
        assert torch.equal(generate(model, alone, eos_token_id=None).sequences[0, -NEW:], together[i])


@pytest.mark.parametrize("decoding", DECODING)
def test_what_is_generated_differs_from_row_to_row_and_from_step_to_step(model, batch, decoding):
    """Or else the tests above would prove little."""
    generated = generate(model, batch, decoding, eos_token_id=None).sequences[:, -NEW:]
    assert not torch.equal(generated[0], generated[-1])
    assert all(len(row.unique()) == NEW for row in generated)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("decoding", ["greedy", "beam"])
def test_a_source_may_be_padded_on_either_side(seq2seq, batch, side, decoding):
    source = batch if side == "left" else {name: tensor.flip(1) for name, tensor in batch.items()}
    together = generate(seq2seq, source, decoding, eos_token_id=None)
    alone = {"input_ids": source["input_ids"][1:, source["attention_mask"][1].bool()]}
    expected = generate(seq2seq, alone, decoding, eos_token_id=None)
    assert torch.equal(together.sequences.view(2, -1, NEW + 1)[1], expected.sequences)


PROMPT_MASKS = {"left": [0, 0, 0, 1, 1, 1, 1, 1], "inside": [1, 1, 1, 1, 0, 0, 0, 1]}
WAYS = {"cached": {}, "static": {"cache_implementation": "static"}, "uncached": {"use_cache": False}}


@pytest.mark.parametrize("way", WAYS)
def test_padding_takes_no_position(kind, model, way):
    """Inside too, where a row of a batch that ended early is followed by what is said next."""
    for padding, row_mask in PROMPT_MASKS.items():
        if padding == "inside" and "attention_window" in kind:
            continue  # it counts places: see the next test
        prompt, mask = torch.randint(3, 50, (2, 8)), torch.tensor([[1] * 8, row_mask])
        prompt[mask.cumsum(1) == 1] = 1  # or else generate() puts a start token before the padding of a decoder
        alone = prompt[1:, mask[1].bool()]
        prompt, source = prompt * mask, torch.randint(3, 50, (2, 5))
        if model.config.is_encoder_decoder:
            batch = {"input_ids": source, "decoder_input_ids": prompt, "decoder_attention_mask": mask}
            single = {"input_ids": source[1:], "decoder_input_ids": alone}
        else:
            batch, single = {"input_ids": prompt, "attention_mask": mask}, {"input_ids": alone}
        together = generate(model, batch, eos_token_id=None, **WAYS[way])
        expected = generate(model, single, eos_token_id=None)
        assert torch.equal(together.sequences[1, -NEW:], expected.sequences[0, -NEW:])
        of_row = torch.stack(together.logits, dim=1)[1]
        torch.testing.assert_close(of_row, torch.stack(expected.logits, dim=1)[0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("use_cache", [True, False])
def test_a_window_does_not_reach_over_padding(make_lm, use_cache):
    """A limit: it counts places, as caches and flash attention do, so padding inside a text hides what is before."""
    model = make_lm(**VARIANTS["local"])
    texts = torch.randint(3, 50, (2, 8))
    texts[:, -1] = 7
    for mask, same in ([1, 1, 1, 1, 1, 1, 1, 1], False), ([1, 1, 1, 1, 0, 0, 0, 1], True):
        inputs = {"input_ids": texts, "attention_mask": torch.tensor([mask, mask])}
        logits = generate(model, inputs, max_new_tokens=1, min_new_tokens=None, use_cache=use_cache).logits[0]
        assert torch.allclose(logits[0], logits[1], **CLOSE) is same


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name, options in VARIANTS.items() if "attention_window" not in options])
def test_right_padded_prompts_are_continued_in_place(make_lm, name):
    """Step by step, from each row's last real token on; generate() itself would go on from the padding."""
    lm = make_lm(**VARIANTS[name])
    ids, mask = torch.randint(3, 50, (2, 6)), torch.tensor([[1] * 6, [1, 1, 1, 0, 0, 0]])
    later = torch.randint(3, 50, (2, 3))
    prefill = lm(ids * mask, attention_mask=mask, use_cache=True)
    cache, logits = prefill.past_key_values, [prefill.logits[1, 2]]
    for i in range(3):
        mask = torch.nn.functional.pad(mask, (0, 1), value=1)
        step = lm(later[:, [i]], attention_mask=mask, past_key_values=cache, use_cache=True)
        logits.append(step.logits[1, 0])
    expected = lm(torch.cat((ids[1:, :3], later[1:]), dim=1)).logits[0, 2:]
    torch.testing.assert_close(torch.stack(logits), expected, **CLOSE)


# Translation


@pytest.mark.parametrize("decoding", DECODING)
def test_the_source_is_encoded_once(make_seq2seq, batch, decoding):
    """However many steps and beams follow, the encoder runs once and cross-attention projects its output once."""
    model, calls = make_seq2seq(), Counter()
    for name, module in model.named_modules():
        if name.endswith(("encoder", "k_proj", "v_proj")):
            module.register_forward_hook(lambda *_, name=name: calls.update([name]))
    steps = len(generate(model, batch, decoding, min_new_tokens=NEW).logits)
    assert steps == NEW
    assert calls.pop("model.encoder") == 1
    expected = {name: NEW if ".decoder." in name and ".self_attn." in name else 1 for name in calls}
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
