"""Parts that are held out by the hash of the text."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paperformer.training.data.hold_out import LINES_OF_A_HEAD, MOST_PAIRS, HeldOut, Part
from paperformer.training.data.readers.sources import Source, pair_reader, text_reader
from paperformer.training.data.text.bad_lines import BadLines
from paperformer.training.data.text.chunks import pair_chunk, text_chunk

from ...examples import examples

PARTS: tuple[Part, ...] = get_args(Part)


class Rows:
    """A reader of chunks that are given."""

    name = "rows"

    def __init__(self, chunks: Sequence[pa.RecordBatch]):
        self.given = chunks

    def files(self) -> list[Path]:
        return []

    def chunks(self, bad: BadLines) -> Any:
        yield from self.given


def pairs_of(pairs: Sequence[tuple[str, str]], part: Part, share: float = 0.1) -> list[tuple[str, str]]:
    chunk = pair_chunk([source for source, _ in pairs], [target for _, target in pairs])
    chunks = HeldOut(reader=Rows([chunk]), part=part, share=share).chunks(BadLines())
    return [pair for c in chunks for pair in zip(*(c.column(side).to_pylist() for side in (0, 1)), strict=True)]


def text_of(chunks: Sequence[pa.RecordBatch], part: Part, share: float = 0.1) -> list[tuple[str, bool]]:
    found = HeldOut(reader=Rows(chunks), part=part, share=share).chunks(BadLines())
    return [
        row for c in found for row in zip(c.column("text").to_pylist(), c.column("begins").to_pylist(), strict=True)
    ]


PAIRS = [(f"Sentence number {n} is here.", f"Satz {n}.") for n in range(3000)]


def test_every_pair_is_in_one_part_and_the_shares_are_those_asked_for() -> None:
    parts = {part: pairs_of(PAIRS, part) for part in PARTS}
    assert sorted(pair for pairs in parts.values() for pair in pairs) == sorted(PAIRS)
    assert len(parts["validation"]) == pytest.approx(300, abs=60)
    assert len(parts["test"]) == pytest.approx(300, abs=60)
    assert parts["validation"] == [pair for pair in PAIRS if pair in set(parts["validation"])]  # in their order


@given(st.lists(st.integers(0, 2999), max_size=300), st.randoms(use_true_random=False))
@settings(max_examples=examples(30))
def test_text_that_is_added_or_moved_moves_no_pair(indices: list[int], random: Any) -> None:
    some = [PAIRS[index] for index in indices]
    random.shuffle(some)
    for part in PARTS:
        assert set(pairs_of(some, part)) == set(some) & set(pairs_of(PAIRS, part))


def test_a_sentence_and_its_variants_are_in_one_part() -> None:
    for source, target in PAIRS[:200]:
        variants = [(source, target), (source.upper(), "Anders."), (f" {source}!", "Noch anders.")]
        assert sorted(len(pairs_of(variants, part)) for part in PARTS) == [0, 0, 3]


def test_of_very_many_pairs_those_of_the_lowest_hashes_are_scored() -> None:
    many = [(f"Sentence {n}", "x") for n in range(12_000)]
    scored, train = pairs_of(many, "validation", 0.2), pairs_of(many, "train", 0.2)
    assert len(scored) == MOST_PAIRS
    assert len(train) == pytest.approx(7_200, abs=200)  # what is held out and not scored is not learned either
    for other in (many[:11_000], many[1_000:], many[::-1]):  # with less, and in another order
        assert {*scored} & {*other} <= {*pairs_of(other, "validation", 0.2)}


LINES = [f"This is line {n} of a long story, and it says {n * n}.\n" for n in range(4000)]


def chunks_of(lines: Sequence[str], size: int = 200) -> list[pa.RecordBatch]:
    texts = ["".join(lines[first : first + size]) for first in range(0, len(lines), size)]
    return [text_chunk(texts, [index == 0 for index in range(len(texts))])]


def test_every_line_of_a_text_is_in_one_part() -> None:
    parts = {part: text_of(chunks_of(LINES), part) for part in PARTS}
    lines = [line for rows in parts.values() for text, _ in rows for line in text.splitlines(keepends=True)]
    assert sorted(lines) == sorted(LINES)
    for part in ("validation", "test"):
        held_out = "".join(text for text, _ in parts[part]).splitlines()
        assert len(held_out) == pytest.approx(400, abs=250)
        assert all(begins for _, begins in parts[part])  # what lies between is not there
        assert min(text.count("\n") for text, _ in parts[part]) >= LINES_OF_A_HEAD


def test_training_text_begins_anew_behind_what_is_missing() -> None:
    held_out = {text for part in ("validation", "test") for text, _ in text_of(chunks_of(LINES), part)}
    rows = text_of(chunks_of(LINES), "train")
    text = "".join(LINES)
    for (before, _), (after, begins) in itertools.pairwise(rows):
        gap = text[text.index(before) + len(before) : text.index(after)]
        assert begins == (gap != "")
        assert not gap or any(piece in gap for piece in held_out)


def test_the_cut_of_a_text_into_rows_does_not_matter() -> None:
    for part in PARTS:
        whole, pieces = (text_of(chunks_of(LINES, size), part) for size in (4000, 7))
        assert [text for text, _ in whole] == [text for text, _ in pieces]


def test_text_that_is_added_at_an_end_or_inserted_moves_no_section_of_before() -> None:
    more = [f"Something else is said here, {n} times.\n" for n in range(500)]
    for part in ("validation", "test"):
        before = {text for text, _ in text_of(chunks_of(LINES), part)}
        for lines in ([*LINES, *more], [*more, *LINES], [*LINES[:2000], *more, *LINES[2000:]]):
            after = {text for text, _ in text_of(chunks_of(lines), part)}
            assert len(before - after) <= 1  # the one that more was added to


def test_documents_are_not_cut_into_others() -> None:
    texts = [f"Document {n} has a title.\nAnd this text.\n" for n in range(500)]
    for part in PARTS:
        assert {text for text, _ in text_of([text_chunk(texts)], part)} <= set(texts)


def test_a_text_of_repeated_short_lines_is_divided_too() -> None:
    lines = [line for n in range(3000) for line in (f"Speech {n} of many words.\n", "\n")]
    parts = {part: len(text_of(chunks_of(lines), part)) for part in PARTS}
    assert min(parts.values()) > 0


def test_real_files(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in PAIRS), "utf-8")
    reader = HeldOut(reader=pair_reader(Source(path=str(tmp_path / "a.tsv")), "en", "de"), part="test", share=0.1)
    rows = [
        pair for c in reader.chunks(BadLines()) for pair in zip(*(c.column(i).to_pylist() for i in (0, 1)), strict=True)
    ]
    assert rows == pairs_of(PAIRS, "test")
    (tmp_path / "t.txt").write_text("".join(LINES), "utf-8")
    text = HeldOut(reader=text_reader(Source(path=str(tmp_path / "t.txt"))), part="test", share=0.1)
    found = [row for c in text.chunks(BadLines()) for row in c.column("text").to_pylist()]
    assert found == [row for row, _ in text_of(chunks_of(LINES), "test")]
