from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paperformer.tokenization import train_tokenizer
from paperformer.training.data.corpus import Corpus, build_corpus
from paperformer.training.data.readers.sources import Source, pair_reader
from paperformer.training.data.text.chunks import pair_chunk, text_chunk
from paperformer.training.data.token_store import TokenStore, TokenWriter
from paperformer.training.data.tokenizing import (
    batch_encoder,
    encoded_documents,
    encoded_pairs,
    tokenized_pairs,
    write_documents,
    write_pairs,
)
from paperformer.training.recipe.cleaning import Cleaning

TEXTS = ["a dog", "ein Hund </s>", "", "  two  spaces "]
TOKENIZER = train_tokenizer(TEXTS * 3, 280, append_eos=True, show_progress=False)
BEGIN, END = 1, 2


def test_the_encoder_gives_what_the_tokenizer_gives_whatever_was_asked_of_it_before() -> None:
    encode = batch_encoder(TOKENIZER)
    expected = TOKENIZER(TEXTS).input_ids
    assert encode(TEXTS) == expected
    TOKENIZER(TEXTS, truncation=True, max_length=2, padding=True)
    TOKENIZER.backend_tokenizer.encode_special_tokens = False
    assert encode(TEXTS) == expected
    plain = batch_encoder(TOKENIZER, add_special_tokens=False)
    assert plain(TEXTS) == TOKENIZER(TEXTS, add_special_tokens=False).input_ids


def test_pairs_are_rows_of_two_sequences(tmp_path: Path) -> None:
    chunks = [pair_chunk(["a dog", "a"], ["ein Hund", ""]), pair_chunk(["dog"], ["Hund"])]
    encode = batch_encoder(TOKENIZER)
    with TokenWriter(tmp_path, columns=2, vocab_size=len(TOKENIZER)) as writer:
        write_pairs(encoded_pairs(chunks, (encode, encode)), writer)
    store = TokenStore(tmp_path)
    rows = [("a dog", "ein Hund"), ("a", ""), ("dog", "Hund")]
    assert [[ids.tolist() for ids in store.row(i)] for i in range(3)] == [
        TOKENIZER(list(row)).input_ids for row in rows
    ]


@given(
    documents=st.lists(st.lists(st.text("ab", max_size=5), min_size=1, max_size=4), max_size=6),
    cuts=st.lists(st.integers(0, 24), max_size=5),
)
def test_documents_lie_between_their_marks_however_they_are_cut_into_chunks(
    tmp_path_factory: pytest.TempPathFactory, documents: list[list[str]], cuts: list[int]
) -> None:
    rows = [(piece, index == 0) for document in documents for index, piece in enumerate(document)]
    bounds = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    chunks = [
        text_chunk([text for text, _ in rows[a:b]], [begins for _, begins in rows[a:b]]) for a, b in pairwise(bounds)
    ]
    folder = tmp_path_factory.mktemp("store")
    with TokenWriter(folder, columns=1, vocab_size=300) as writer:
        write_documents(encoded_documents(chunks, _letters, begin=BEGIN, end=END), writer)
    store = TokenStore(folder)
    expected = [[BEGIN, *_letters(["".join(document)])[0], END] for document in documents]
    assert [store.row(i)[0].tolist() for i in range(len(store))] == expected


def _letters(texts: list[str]) -> list[list[int]]:
    return [[ord(letter) for letter in text] for text in texts]


def test_starts_point_at_the_marks() -> None:
    chunks = [text_chunk(["ab", "a"], [True, True]), text_chunk(["b", "a"], [False, True])]
    parts = list(encoded_documents(chunks, _letters, begin=BEGIN, end=END))
    assert all(ids[starts].tolist() == [BEGIN] * len(starts) for ids, starts in parts)
    assert np.concatenate([ids for ids, _ in parts]).tolist() == [
        *(BEGIN, 97, 98, END),
        *(BEGIN, 97, 98, END),
        *(BEGIN, 97, END),
    ]


def test_text_that_begins_in_the_middle_of_a_document_gets_its_mark_too() -> None:
    [(ids, starts), (last, _)] = encoded_documents([text_chunk(["a"], [False])], _letters, begin=BEGIN, end=END)
    assert (ids.tolist(), starts.tolist(), last.tolist()) == ([BEGIN, 97], [0], [END])


def test_tokens_are_cached_by_text_and_tokenizer(tmp_path: Path) -> None:
    def corpus(name: str, line: str) -> Corpus:
        (tmp_path / f"{name}.tsv").write_text(line)
        source = Source(path=str(tmp_path / f"{name}.tsv"))
        readers = [(source, pair_reader(source, "en", "de"))]
        return build_corpus(tmp_path, "data.train", readers, Cleaning(), ("en", "de"))

    other = train_tokenizer(["other words"] * 3, 270, append_eos=True, show_progress=False)
    first, second = corpus("first", "a dog\tein Hund\n"), corpus("second", "a cat\teine Katze\n")
    stores = [
        tokenized_pairs(tmp_path, text, tokenizers)
        for text in (first, second)
        for tokenizers in ((TOKENIZER, TOKENIZER), (TOKENIZER, other), (other, TOKENIZER))
    ]
    assert len({store.folder for store in stores}) == 6
    assert stores[1].row(0)[0].tolist() == TOKENIZER("a dog").input_ids
    assert stores[1].row(0)[1].tolist() == other("ein Hund").input_ids
    assert tokenized_pairs(tmp_path, first, (TOKENIZER, other)).folder == stores[1].folder
