"""Text that comes in parts is the text that would have come at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerBase

from paperformer import train_tokenizer
from paperformer.serving.engines.incremental_text import IncrementalText

TEXTS = ["A dog runs on the beach.", "Ein Hund läuft am Strand.", "狗跑了。"]


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return train_tokenizer(TEXTS * 3, 300 if request.param == "bpe" else 290, algorithm=request.param, append_eos=False)


@given(text=st.text(max_size=30), prompt=st.sampled_from(["", "A dog", "狗"]))
def test_parts_make_the_whole(tokenizer: PreTrainedTokenizerBase, text: str, prompt: str) -> None:
    ids = tokenizer(prompt + text, add_special_tokens=False).input_ids
    before = len(tokenizer(prompt, add_special_tokens=False).input_ids)
    known = tokenizer.decode(ids[:before])
    if "\ufffd" in known:
        return  # the tokens are cut within a character
    incremental = IncrementalText(lambda part: str(tokenizer.decode(list(part))), ids[:before])
    parts = []
    for token in ids[before:]:
        incremental.add([token])
        parts.append(incremental.take())
    incremental.end()
    parts.append(incremental.take())
    assert "".join(parts) == tokenizer.decode(ids)[len(known) :]


def characters(ids: object) -> str:
    return "".join(map(chr, ids))  # type: ignore[call-overload]


@given(
    text=st.text("abc", max_size=40),
    stops=st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
    step=st.integers(1, 3),
)
def test_nothing_of_a_stop_text_is_shown(text: str, stops: list[str], step: int) -> None:
    incremental = IncrementalText(characters, [], stops)
    shown = ""
    ids = [ord(character) for character in text]
    for start in range(0, len(ids), step):
        incremental.add(ids[start : start + step])
        shown += incremental.take()
        if incremental.is_stopped:
            break
    incremental.end()
    shown += incremental.take()
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    assert incremental.is_stopped == bool(ends)
    # Of two stop texts the one that is complete first ends the text, although another may begin before it.
    complete = [(text.find(stop) + len(stop), text.find(stop)) for stop in stops if stop in text]
    expected = text
    if complete:
        last = -(-min(complete)[0] // step) * step  # what has come by then
        expected = text[: min(place for place in (text[:last].find(stop) for stop in stops) if place >= 0)]
    assert shown == incremental.text == expected
