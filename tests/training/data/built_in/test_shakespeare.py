"""The corpus is the one its documentation describes, and no play is in two splits."""

import hashlib
import lzma
import re
from importlib import resources

import pytest

from paperformer.training.data.built_in import shakespeare


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    return shakespeare.plays()


def test_the_file_is_the_documented_one() -> None:
    folder = resources.files("paperformer.training.data.built_in")
    raw = lzma.decompress(folder.joinpath("shakespeare.txt.xz").read_bytes())
    assert hashlib.sha256(raw).hexdigest() == shakespeare.SHA256
    sources = folder.joinpath("SOURCES.md").read_text("utf-8")
    assert shakespeare.SHA256 in sources
    assert f"{len(raw):,} bytes" in sources


def test_thirty_seven_plays_in_alphabetical_order_and_nothing_lost(texts: dict[str, str]) -> None:
    assert len(texts) == 37
    assert list(texts) == sorted(texts)
    assert {"Hamlet", "A Midsummer Night's Dream", "Henry VI, Part 2", "Measure for Measure"} <= set(texts)
    rebuilt = "\n\n".join(f"# {title}\n\n{text}" for title, text in texts.items()) + "\n"
    assert hashlib.sha256(rebuilt.encode("utf-8")).hexdigest() == shakespeare.SHA256


def test_every_play_is_speeches_of_a_speaker_and_lines(texts: dict[str, str]) -> None:
    for title, text in texts.items():
        for speech in text.split("\n\n"):
            speaker, *lines = speech.split("\n")
            assert re.fullmatch(r"[A-Z][A-Za-z' -]*:", speaker), f"{title}: {speech[:80]!r}"
            assert lines, f"{title}: {speaker} says nothing"
            assert all(line and line == line.strip() for line in lines), f"{title}: {speech[:80]!r}"


def test_text_is_clean(texts: dict[str, str]) -> None:
    for title, text in texts.items():
        assert text.isascii(), title
        assert not re.search(r"[#*_\\\[\]<>]|\r|\t|  ", text), f"{title}: markup left over"
        assert not re.search(r"^(ACT [IVX]+|SCENE|Exeunt\b|Exit\b)", text, re.MULTILINE), f"{title}: stage direction"


@pytest.mark.parametrize(
    ("title", "passage"),
    [
        (
            "Hamlet",
            "HAMLET:\nTo be, or not to be: that is the question:\nWhether 'tis nobler in the mind to suffer",
        ),
        ("Romeo and Juliet", "\n\nROMEO:\nIs the day so young?\n\nBENVOLIO:\nBut new struck nine."),
        ("King Lear", "\n\nKING LEAR:\nNothing!\n\nCORDELIA:\nNothing.\n\nKING LEAR:\n"),
        # Repaired: a soliloquy without its speaker, a prologue likewise, and a name run into the speech.
        ("Timon of Athens", "\n\nTIMON:\nO blessed breeding sun, draw from the earth\n"),
        ("Henry VIII", "Prologue:\nI come no more to make you laugh: things now,\n"),
        ("Henry IV, Part 2", "\n\nLord Chief-Justice:\nWhat's he that goes there?\n"),
    ],
)
def test_known_passages(texts: dict[str, str], title: str, passage: str) -> None:
    assert passage in texts[title]


def test_splits_share_no_play_and_lose_none(texts: dict[str, str]) -> None:
    splits = shakespeare.play_splits()
    assert {name: len(documents) for name, documents in splits.items()} == {
        "train": 33,
        "validation": 2,
        "test": 2,
    }
    documents = [document for split in splits.values() for document in split]
    assert len(set(documents)) == 37
    assert set(documents) == set(texts.values())
    assert splits["validation"] == [texts["Othello"], texts["Twelfth Night"]]
    assert splits["test"] == [texts["King Lear"], texts["Much Ado About Nothing"]]


def test_held_out_splits_are_of_equal_size() -> None:
    sizes = {name: sum(map(len, documents)) for name, documents in shakespeare.play_splits().items()}
    assert abs(sizes["validation"] - sizes["test"]) < 0.05 * sizes["test"]
    assert 0.04 < sizes["test"] / sum(sizes.values()) < 0.08


def test_held_out_plays_share_no_long_passage_with_training() -> None:
    splits = shakespeare.play_splits()
    train_lines = {line for text in splits["train"] for line in text.split("\n") if len(line) > 45}
    for name in ("validation", "test"):
        lines = [line for text in splits[name] for line in text.split("\n") if len(line) > 45]
        assert not train_lines.intersection(lines), name
