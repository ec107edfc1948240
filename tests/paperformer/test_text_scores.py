"""`evaluate_text`, for our models and others, against a plain loop and against what a run says of itself."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import paperformer
from paperformer import InputError, Run, evaluate_text
from paperformer.training.evaluation import masked_tokens, perplexity
from paperformer.training.evaluation.metrics import LOSS, METRICS, PSEUDO_PERPLEXITY, Score

from ..examples import examples
from .conftest import Saved

TEXT = "The dog runs in the house, and sings.\n\nÜber the long queue,  a cat waits.\n" * 4
SMALL = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64}


def character_tokenizer(**special: str) -> PreTrainedTokenizerFast:
    """A tokenizer that is not ours: a token a byte, and the marks that are given."""
    vocab = {token: number for number, token in enumerate([*dict.fromkeys(special.values()), *alphabet()])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)


def alphabet() -> list[str]:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def randomised(model: Any) -> Any:
    """Far from uniform, so that a wrong context shows."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.4)
    return model.eval()


@pytest.fixture(scope="module")
def gpt2() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = character_tokenizer(bos_token="<|endoftext|>", eos_token="<|endoftext|>")
    return randomised(GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **SMALL))), tokenizer


@pytest.fixture(scope="module")
def llama() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Without any marks."""
    tokenizer = character_tokenizer(unk_token="<unk>")
    size = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=len(tokenizer) + 3, max_position_embeddings=48, **size)
    return randomised(LlamaForCausalLM(config)), tokenizer


@pytest.fixture(scope="module")
def bert() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    tokenizer = character_tokenizer(**special)
    from tokenizers.processors import TemplateProcessing

    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    size = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=40, **size)
    return randomised(BertForMaskedLM(config)), tokenizer


def slow_nats(model: PreTrainedModel, ids: list[int], context: int, stride: int) -> float:
    """One token at a time, from all tokens before it in its window, without batches, windows' overlap or labels.

    Window n is the tokens from n * stride on; a token is predicted in the first window that reaches it.
    """
    total = 0.0
    for place in range(1, len(ids)):
        start = max(0, math.ceil((place + 1 - context) / stride)) * stride
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids[start:place]], device=model.device)).logits[0, -1]
        total -= logits.double().log_softmax(-1)[ids[place]].item()
    return total


def by_name(scores: list[Score]) -> dict[str, Score]:
    return {score.metric.name: score for score in scores}


def check(scores: list[Score], nats: float, tokens: int, *texts: str) -> None:
    found = by_name(scores)
    words, size = sum(len(text.split()) for text in texts), sum(len(text.encode()) for text in texts)
    assert {name: score.count for name, score in found.items()} == {
        "loss": tokens, "token_perplexity": tokens, "perplexity": words, "byte_perplexity": size, "bits_per_byte": size
    }  # fmt: skip
    values = {
        "loss": nats / tokens,
        "token_perplexity": math.exp(nats / tokens),
        "perplexity": math.exp(nats / words),
        "byte_perplexity": math.exp(nats / size),
        "bits_per_byte": nats / math.log(2) / size,
    }
    assert {name: score.value for name, score in found.items()} == pytest.approx(values, rel=1e-5)


@pytest.mark.parametrize(("context", "stride"), [(64, None), (20, 10), (20, 1), (7, 6)])
def test_a_model_of_transformers_as_a_slow_loop(
    gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast], context: int, stride: int | None
) -> None:
    model, tokenizer = gpt2
    text = TEXT[:110]
    mark = tokenizer.eos_token_id
    ids = [mark, *tokenizer(text).input_ids, mark]
    scores = evaluate_text(model, text, tokenizer=tokenizer, context_length=context, stride=stride)
    check(scores, slow_nats(model, ids, context, stride or context // 2), len(ids) - 1, text)
    assert {score.signature for score in scores} == {f"context:{context}|stride:{stride or context // 2}"}


def test_our_model_as_a_slow_loop(lm: Saved) -> None:
    bos, eos = 1, 2
    ids = [bos, *lm.tokenizer(TEXT[:110]).input_ids, eos]
    scores = evaluate_text(lm.folder, TEXT[:110], context_length=20, stride=7)
    check(scores, slow_nats(lm.model, ids, 20, 7), len(ids) - 1, TEXT[:110])
    loaded = evaluate_text(lm.model, TEXT[:110], tokenizer=lm.tokenizer, context_length=20, stride=7)
    assert loaded == scores


def test_documents_see_nothing_of_each_other(gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast]) -> None:
    model, tokenizer = gpt2
    mark = tokenizer.eos_token_id
    text = "The dog runs.\nA cat\n\n \nwaits.\n"
    pieces = {
        "joined": [text],
        "each": ["The dog runs.", "A cat", "waits."],
        "blank_line": ["The dog runs.\nA cat\n", "waits.\n"],
    }
    for documents, parts in pieces.items():
        rows = [[mark, *tokenizer(part).input_ids, mark] for part in parts]
        nats = sum(slow_nats(model, ids, 16, 8) for ids in rows)
        scores = evaluate_text(model, text, tokenizer=tokenizer, context_length=16, documents=documents)  # type: ignore[arg-type]
        check(scores, nats, sum(len(ids) - 1 for ids in rows), *parts)
    several = evaluate_text(model, pieces["each"], tokenizer=tokenizer, context_length=16)
    assert by_name(several)["loss"].value == pytest.approx(
        by_name(evaluate_text(model, text, tokenizer=tokenizer, context_length=16, documents="each"))["loss"].value
    )


def test_without_marks(llama: tuple[PreTrainedModel, PreTrainedTokenizerFast]) -> None:
    """The first token has nothing before it, and is not predicted; the signature says so."""
    model, tokenizer = llama
    ids = tokenizer(TEXT[:110]).input_ids
    scores = evaluate_text(model, TEXT[:110], tokenizer=tokenizer)
    check(scores, slow_nats(model, ids, 48, 24), len(ids) - 1, TEXT[:110])
    assert scores[0].signature == "context:48|stride:24|begin:none|end:none"  # and no longer than the model takes


def test_ends_of_documents_need_not_be_predicted(gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast]) -> None:
    model, tokenizer = gpt2
    ids = [tokenizer.eos_token_id, *tokenizer("The dog").input_ids]
    scores = evaluate_text(model, "The dog", tokenizer=tokenizer, end_marks=False)
    check(scores, slow_nats(model, ids, 64, 32), len(ids) - 1, "The dog")
    assert scores[0].signature == "context:64|stride:32|end:none"


def test_a_text_that_spells_a_mark_does_not_mean_it(gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast]) -> None:
    model, tokenizer = gpt2
    loss, *_ = evaluate_text(model, "a <|endoftext|> b", tokenizer=tokenizer)
    assert loss.count == len("a <|endoftext|> b") + 1


def test_the_perplexity_of_a_model_that_knows_nothing_is_the_size_of_its_vocabulary(
    gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast],
) -> None:
    model = GPT2LMHeadModel(GPT2Config(vocab_size=len(gpt2[1]), **SMALL))
    torch.nn.init.zeros_(model.lm_head.weight)
    scores = by_name(evaluate_text(model, TEXT, tokenizer=gpt2[1]))
    assert scores["token_perplexity"].value == pytest.approx(257, rel=1e-5)


@settings(max_examples=examples(8))
@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(2, 24), st.data())
def test_padding_and_batches_change_nothing(
    gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast], lengths: list[int], context: int, data: st.DataObject
) -> None:
    model, _ = gpt2
    stride = data.draw(st.integers(1, context - 1))
    generator = torch.Generator().manual_seed(sum(lengths))
    documents = [torch.randint(257, (length,), generator=generator).numpy() for length in lengths]
    found = [
        perplexity.loss_per_token(model, perplexity.overlapping_windows(documents, context, stride, tokens))
        for tokens in (1, data.draw(st.integers(2, 200)), 10_000)
    ]
    assert {score.count for score in found} == {sum(lengths) - len(lengths)}
    assert [score.value for score in found] == pytest.approx([found[0].value] * 3, rel=1e-5)


def test_losses_are_summed_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = torch.randn(3, 7, 11), torch.randint(11, (3, 7))
    labels[torch.rand(3, 7) < 0.3] = -100
    whole = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    monkeypatch.setattr(perplexity, "CHUNK_LOGITS", 22)
    assert perplexity.losses_of_labels(logits, labels).sum().item() == pytest.approx(whole.item(), rel=1e-6)


def test_a_masked_model_of_transformers(bert: tuple[PreTrainedModel, PreTrainedTokenizerFast]) -> None:
    """Pseudo-perplexity of all tokens, each window between [CLS] and [SEP], as Salazar et al. write it."""
    model, tokenizer = bert
    text, room = TEXT[:85], 18
    scores = by_name(evaluate_text(model, text, tokenizer=tokenizer, context_length=20))
    bare, losses = tokenizer(text, add_special_tokens=False).input_ids, []
    for start in range(0, len(bare), room):
        ids = [1, *bare[start : start + room], 2]
        for place in range(1, len(ids) - 1):
            masked = [*ids[:place], tokenizer.mask_token_id, *ids[place + 1 :]]
            with torch.no_grad():
                losses.append(-model(torch.tensor([masked])).logits[0, place].log_softmax(-1)[ids[place]].item())
    assert scores["pseudo_perplexity"].count == len(losses) == len(text.encode())
    assert scores["pseudo_perplexity"].value == pytest.approx(math.exp(sum(losses) / len(losses)), rel=1e-5)
    assert scores["loss"].count == scores["masked_accuracy"].count == pytest.approx(0.15 * len(losses), rel=0.1)
    assert {score.signature for score in scores.values()} == {"context:20|mask:0.15"}


def test_masks_do_not_depend_on_batches(
    bert: tuple[PreTrainedModel, PreTrainedTokenizerFast], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokenizer = bert
    found = []
    for tokens in (1, 50, 4096):
        monkeypatch.setattr(masked_tokens, "TOKENS_PER_BATCH", tokens)
        scores = evaluate_text(model, TEXT[:200], tokenizer=tokenizer, context_length=20)
        found.append([score.value for score in scores])
    assert found[1:] == [pytest.approx(found[0], rel=1e-5)] * 2


SECTIONS: dict[str, Any] = {
    "cleaning": {"leak_check": False, "duplicates": "keep"},
    "tokenizer": {"vocab_size": 300},
    "model": {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1},
    "optimization": {"max_steps": 2, "tokens_per_batch": 64, "warmup_steps": 1},
    "evaluation": {"every_steps": 2, "validation_samples": 1, "samples": 1},
}


@pytest.mark.parametrize("objective", ["lm", "encoder"])
def test_a_runs_test_score_again_to_the_last_digit(objective: str, tmp_path: Path) -> None:
    for split, times in {"train": 20, "validation": 2, "test": 5}.items():
        (tmp_path / f"{split}.txt").write_text(TEXT * times, "utf-8")
    data = {"dataset": str(tmp_path), "context_length": 24, "documents": "blank_line"}
    run: Run = paperformer.train(
        {"objective": objective, "name": "small", "output_dir": str(tmp_path), "data": data} | SECTIONS
    )
    recorded = {score.metric: score for score in run.scores if score.split == "test"}
    for model in (run, run.folder, str(run.model_folder)):
        found = evaluate_text(model, tmp_path / "test.txt", documents="blank_line")  # the context as in training
        again = {score.metric: score for score in found if score.metric in recorded}
        assert again.keys() == recorded.keys()
        for metric, score in again.items():
            assert (score.value, score.basis) == (recorded[metric].value, recorded[metric].basis)
    assert (PSEUDO_PERPLEXITY in recorded) == (objective == "encoder")
    assert recorded[LOSS].signature == {"lm": "context:24|stride:12", "encoder": "context:24|mask:0.15"}[objective]


def test_a_word_that_no_float_can_hold() -> None:
    assert perplexity.perplexity(710.0) == math.inf


def test_bad_input_is_one_line(
    gpt2: tuple[PreTrainedModel, PreTrainedTokenizerFast],
    llama: tuple[PreTrainedModel, PreTrainedTokenizerFast],
    bert: tuple[PreTrainedModel, PreTrainedTokenizerFast],
    seq2seq: Saved,
    tmp_path: Path,
) -> None:
    def refused(text: Any, given: Any = gpt2, **options: Any) -> str:
        model, tokenizer = given
        with pytest.raises(InputError) as error:
            evaluate_text(model, text, tokenizer=tokenizer, **options)
        assert "\n" not in str(error.value)
        return str(error.value)

    (tmp_path / "empty.txt").touch()
    assert refused("") == "the text is empty; it must have text, a line at least"
    assert refused(tmp_path / "empty.txt") == f"{tmp_path}/empty.txt is empty; it must have text, a line at least"
    assert refused([]) == "there is no text to score; give one at least"
    assert refused(" \n\t\n") == "the text has no words, only white space"
    assert refused("a\ud800") == "the text, line 1: byte 0xed at byte 2 of the line is not UTF-8; convert to UTF-8"
    assert refused(tmp_path / "nowhere.txt").startswith(f"there is no {tmp_path}/nowhere.txt")
    assert refused("a", llama) == "the text has nothing to predict: each document is a single token"
    assert refused("a", stride=0) == "stride is 0; it must be from 1 to context_length - 1 (63)"
    assert refused("a", stride=64) == "stride is 64; it must be from 1 to context_length - 1 (63)"
    assert refused("a", context_length=65) == "context_length is 65; the model takes at most 64 tokens"
    assert refused("a", context_length=1) == "context_length is 1; it must be at least 2"
    assert refused("a b", bert, stride=3).startswith("stride is 3; a masked model sees a window at a time")
    assert refused("a b", bert, context_length=3) == "context_length is 3; with the tokenizer's marks it must be 4"
    assert refused("a", mask_probability=0) == "mask_probability is 0; it must be above 0 and at most 1"
    assert refused("a", (gpt2[0], None)).startswith("a model that has been loaded needs its tokenizer")
    assert refused("a", (seq2seq.folder, None)).startswith(f"{seq2seq.folder} holds a paperformer-seq2seq, which ")
    head = BertForSequenceClassification(bert[0].config)
    assert refused("a", (head, bert[1])) == (
        "the model is a BertForSequenceClassification; it must be a model that predicts tokens"
    )
    small = GPT2LMHeadModel(GPT2Config(vocab_size=60, **SMALL))
    assert refused("The dog", (small, gpt2[1])).endswith("and the model has 60 tokens; it is another model's")


def test_new_metrics_are_known_by_name() -> None:
    assert METRICS["token_perplexity"].label == "Perplexity a token"
    assert METRICS["byte_perplexity"].label == "Perplexity a byte"
