import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from paperformer.tokenization import train_tokenizer
from paperformer.training.data.text.chunks import text_chunk
from paperformer.training.data.tokenizing import document_encoder
from paperformer.training.evaluation.passages import PassageLosses, losses_by_passage, read_losses

from ...examples import examples

WORDS = ["Hund", "läuft", "am", "Strand", "日本", "no", "🙂"]
TEXT = "".join(" ".join(WORDS[(line * step) % 7] for step in range(1, 9)) + "\n" for line in range(120))


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, PreTrainedTokenizerFast]:
    lines = TEXT.splitlines(keepends=True)
    return {
        name: train_tokenizer(lines, size, algorithm=name, append_eos=False)
        for name, size in (("byte_bpe", 280), ("bpe", 290), ("characters", 300))
    }


def losses_of(tokenizer: PreTrainedTokenizerFast, rows: list[str], begins: list[bool]) -> PassageLosses:
    """Each token costs as much as its place in its document says; a document's first is not predicted."""
    chunks = [text_chunk(rows, begins)]
    starts: list[int] = []
    length = 0
    for ids, own in document_encoder(tokenizer)(chunks):
        starts += (own + length).tolist()
        length += len(ids)
    sizes = np.diff([*starts, length])
    costs = [np.where(np.arange(size) == 0, np.nan, np.arange(size, dtype=np.float64)) for size in sizes]
    losses = losses_by_passage(costs, chunks, tokenizer)
    assert losses.nats.sum() == pytest.approx(sum(np.nansum(cost) for cost in costs))
    assert losses.tokens.sum() == length - len(starts)
    return losses


def test_passages_are_the_same_for_every_tokenizer(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    found = {name: losses_of(tokenizer, [TEXT], [True]) for name, tokenizer in tokenizers.items()}
    assert len({losses.sha256 for losses in found.values()}) == 1
    sizes = [losses.bytes.tolist() for losses in found.values() if losses.bytes is not None]
    assert sizes[0] == sizes[1] == sizes[2]
    assert sum(sizes[0]) == len(TEXT.encode())
    assert "".join(found["bpe"].texts) == TEXT
    assert [len(text.encode()) for text in found["bpe"].texts] == sizes[0]
    assert all(1000 <= size < 1100 for size in sizes[0][:-1])
    text = TEXT.encode()
    characters = found["characters"].tokens.tolist()
    for number, size in enumerate(sizes[0]):  # a character is a token, and the last has the mark of the end
        own, text = text[:size].decode(), text[size:]
        assert characters[number] == len(own) + (number == len(sizes[0]) - 1)


@settings(max_examples=examples(10))
@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=8))
def test_rows_and_documents_do_not_matter(
    tokenizers: dict[str, PreTrainedTokenizerFast], cuts: list[tuple[int, bool]]
) -> None:
    """Passages go on over rows; only tokens of marks come in where documents begin."""
    lines = TEXT.splitlines(keepends=True)
    rows, begins, at = [], [], 0
    for count, is_new in [*cuts, (len(lines), False)]:
        if at < len(lines):
            rows.append("".join(lines[at : at + count]))
            begins.append(is_new or at == 0)
            at += count
    whole, divided = (losses_of(tokenizers["characters"], *given) for given in (([TEXT], [True]), (rows, begins)))
    assert (whole.sha256, whole.bytes.tolist()) == (divided.sha256, divided.bytes.tolist())  # type: ignore[union-attr]
    assert divided.tokens.sum() == len(TEXT) + sum(begins)


def test_another_text_has_another_hash(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    hashes = {losses_of(tokenizers["bpe"], [text], [True]).sha256 for text in (TEXT, TEXT[:-1], f"{TEXT} ", "b\n")}
    assert len(hashes) == 4


def test_a_file_of_losses_says_the_same(tokenizers: dict[str, PreTrainedTokenizerFast]) -> None:
    losses = losses_of(tokenizers["bpe"], [TEXT], [True])
    read = read_losses("".join(json.dumps(record) + "\n" for record in losses.records()), losses.sha256)
    assert read is not None
    assert read.records() == losses.records()
    for text in ("", "{", '{"nats": 1.0}\n', '{"nats": "one", "tokens": 3}\n', '{"nats": NaN, "tokens": 3}\n', "[]\n"):
        assert read_losses(text, "") is None
