import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer import (
    PaperformerForCausalLM,
    PaperformerForConditionalGeneration,
    PaperformerLMConfig,
    PaperformerSeq2SeqConfig,
)
from paperformer.training.data.batches.masked_language_modeling import collate_masked
from paperformer.training.data.batches.packing import collate_blocks
from paperformer.training.data.batches.token_budget import Batch, pad
from paperformer.training.engine.memory.split_batch import split_batch

from ....examples import examples

IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
SIZES = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "dropout": 0.0} | IDS
LAYERS = {"encoder_layers": 2, "decoder_layers": 2, "decoder_start_token_id": 1}

torch.manual_seed(0)
TRANSLATOR = PaperformerForConditionalGeneration(PaperformerSeq2SeqConfig(**SIZES, **LAYERS)).double().train()
LM = PaperformerForCausalLM(PaperformerLMConfig(**SIZES, num_hidden_layers=2)).double().train()
LM.config.use_cache = False  # or documents are not kept apart

Sentences = st.lists(st.lists(st.integers(3, 29), min_size=1, max_size=6), min_size=1, max_size=5)


def pairs_batch(sources: list[list[int]], targets: list[list[int]]) -> Batch:
    return {
        "input_ids": pad(sources, 0),
        "attention_mask": pad([[1] * len(source) for source in sources], 0),
        "labels": pad(targets, -100),
    }


def gradients(model: torch.nn.Module, batches: list[Batch], labels: int) -> tuple[float, list[torch.Tensor]]:
    """The sum of the losses, and what it gives the parameters."""
    model.zero_grad()
    total = 0.0
    for batch in batches:
        loss = model(**batch, num_items_in_batch=torch.tensor(labels), return_logits=False).loss
        loss.backward()
        total += float(loss.detach())
    return total, [p.grad for p in model.parameters()]


def assert_same_update(model: torch.nn.Module, batch: Batch, groups: list[Batch]) -> None:
    for actual, expected in zip(gradients(model, groups, 7), gradients(model, [batch], 7), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(30))
@given(Sentences, Sentences, st.integers(1, 7))
def test_parts_of_pairs_add_up_to_the_whole(sources: list[list[int]], targets: list[list[int]], parts: int) -> None:
    rows = min(len(sources), len(targets))
    sources, targets = sources[:rows], targets[:rows]
    groups = split_batch(pairs_batch(sources, targets), parts)
    sizes = [len(group["labels"]) for group in groups]
    assert len(groups) == min(parts, rows)
    assert max(sizes) - min(sizes) <= 1
    first = 0
    for size, group in zip(sizes, groups, strict=True):  # which is what these rows would be as a batch of their own
        expected = pairs_batch(sources[first : first + size], targets[first : first + size])
        assert {name: tensor.tolist() for name, tensor in group.items()} == {
            name: tensor.tolist() for name, tensor in expected.items()
        }
        first += size
    assert_same_update(TRANSLATOR, pairs_batch(sources, targets), groups)


@settings(max_examples=examples(30))
@given(st.data(), st.integers(1, 7), st.booleans())
def test_parts_of_running_text_add_up_to_the_whole(data: st.DataObject, parts: int, separate: bool) -> None:
    tokens = np.array(data.draw(st.lists(st.integers(3, 29), min_size=2, max_size=20)))
    places = st.lists(st.integers(0, len(tokens)), min_size=2, max_size=2, unique=True).map(sorted)
    blocks = np.array(data.draw(st.lists(places, min_size=1, max_size=5)))
    starts = np.array(sorted(data.draw(st.sets(st.integers(0, len(tokens) - 1)))), dtype=np.int64)
    batch = collate_blocks(tokens, blocks, 0, starts if separate else None)
    groups = split_batch(batch, parts)
    assert [row for group in groups for row in group["input_ids"].tolist()] != []
    for group in groups:
        assert len({tensor.shape for tensor in group.values()}) == 1
        is_used = (group["labels"] != -100).any(dim=0)
        assert is_used[-1] or len(is_used) == 1
    assert_same_update(LM, batch, groups)


@pytest.mark.parametrize("family", ["lm", "seq2seq"])
def test_missing_parts_can_be_made_up_for(family: str) -> None:
    model, batch = TRANSLATOR, pairs_batch([[5, 6], [7]], [[8], [9, 5]])
    if family == "lm":
        model, batch = LM, collate_blocks(np.array([5, 6, 7, 8]), np.array([[0, 3], [1, 4]]), 0, np.array([0, 2]))
    groups = split_batch(batch, 5, fill_up=True)
    assert [len(group["labels"]) for group in groups] == [1] * 5
    assert [int((group["labels"] != -100).sum()) > 0 for group in groups] == [True] * 2 + [False] * 3
    assert_same_update(model, batch, groups)
    assert len(split_batch(batch, 2, fill_up=True)) == 2


def test_a_masked_text_keeps_its_input_where_nothing_is_to_be_predicted() -> None:
    batch = collate_masked([[5, 6, 7, 8], [5, 6]], np.arange(30) > 2, 3, 0, np.random.default_rng(0), probability=0.01)
    short = split_batch(batch, 2)[1]
    assert short["input_ids"].shape == short["attention_mask"].shape == (1, 2)
    assert [split_batch(batch, 2)[0][name].shape[1] for name in ("input_ids", "attention_mask")] == [4, 4]


def test_what_a_decoder_reads_is_cut_with_the_labels() -> None:
    batch = pairs_batch([[5], [5, 6, 7]], [[5, 6, 7], [5]])
    batch["decoder_input_ids"] = torch.ones_like(batch["labels"])
    widths = [(part["input_ids"].shape[1], part["decoder_input_ids"].shape[1]) for part in split_batch(batch, 2)]
    assert widths == [(1, 3), (3, 1)]
