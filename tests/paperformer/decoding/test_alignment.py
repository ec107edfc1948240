"""Alignments: from attention, by words."""

from typing import Any

import pytest
import torch

from paperformer import InputError, align, translate
from paperformer.api.translators import aligned_work, plain_work, read_search, searching_work
from paperformer.cli import main
from paperformer.decoding import alignment
from paperformer.decoding.alignment import align_words, cross_attention
from paperformer.decoding.translator import Translator
from paperformer.plots.attention_maps import collect_attention
from paperformer.translation.checking import text_of
from paperformer.translation.formats.marked_text import AlignedText, TextWithCodes


def test_the_weights_are_those_that_the_plots_show(one: Translator) -> None:
    source, target = "A dog runs.", "Ein Hund läuft"
    ids = [one.tokenizer(text).input_ids for text in (source, target)]
    longer = one.tokenizer("Two men talk on the beach.").input_ids
    before = one.model.config._attn_implementation
    weights = cross_attention(one.model, [ids[0], longer], [ids[1], longer], None)
    assert one.model.config._attn_implementation == before
    one.model.set_attn_implementation("eager")
    expected = collect_attention(one.model, one.tokenizer, source, target)["cross"].weights
    one.model.set_attn_implementation(before)
    rows, columns = len(ids[1]), len(ids[0])
    torch.testing.assert_close(weights[0, :rows, :columns], expected[0].mean(0))  # of two layers, the last but one
    assert (weights[0, :rows, columns:] == 0).all()
    last = cross_attention(one.model, ids[:1], ids[1:], 1)
    torch.testing.assert_close(last[0], expected[1].mean(0))


def test_words_belong_together_where_their_tokens_do(one: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def in_turn(model: Any, sources: Any, targets: Any, layer: Any) -> torch.Tensor:
        """Each token of the target looks at the token of the source at the same place; the last ones at the end."""
        weights = torch.zeros(len(sources), max(map(len, targets)), max(map(len, sources)))
        for row, (source, target) in enumerate(zip(sources, targets, strict=True)):
            for place in range(len(target)):
                weights[row, place, min(place, len(source) - 1)] = 1.0
        return weights

    monkeypatch.setattr(alignment, "cross_attention", in_turn)
    texts = ["Two men  talk.", "A dog runs."]
    same = align_words(one.model, one.tokenizer, None, texts, texts, longest=64)
    assert same == [((0, 0), (1, 1), (2, 2)), ((0, 0), (1, 1), (2, 2))]
    assert len(one.tokenizer("runs.").input_ids) > 2  # a word of several tokens
    prefixed = align_words(one.model, one.tokenizer, None, ["dog"], ["A dog runs."], longest=64, prefix="A ")
    assert prefixed == [((0, 1),)]  # A is no word of the source, and what is behind looks at the end mark


def test_in_python_and_on_the_command_line(seq2seq: Any, tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.write_text("A dog runs.\n\n", "utf-8")
    main(["translate", str(seq2seq.folder), "--input", str(source), "--num_beams", "2", "--alignment"])
    first, second = capsys.readouterr().out.splitlines()
    text, _, pairs = first.partition(" ||| ")
    assert second == " ||| "
    (found,) = translate(seq2seq.folder, ["A dog runs."], 2, n_best=1, alignment=True)
    assert found[0].text == text
    (expected,) = align(seq2seq.folder, ["A dog runs."], [text])
    assert found[0].alignment == expected
    assert pairs == " ".join(f"{a}-{b}" for a, b in expected)
    with pytest.raises(InputError, match="alignment is for hypotheses, which n_best gives"):
        translate(seq2seq.folder, ["A dog runs."], alignment=True)
    with pytest.raises(InputError, match="alignment_layer is 7; the decoder has layers from 0 to 0"):
        align(seq2seq.folder, ["A dog runs."], [text], layer=7)
    with pytest.raises(InputError, match="there are 1 sources and 2 translations; each must have one"):
        align(seq2seq.folder, ["A dog runs."], [text, text])


@pytest.mark.parametrize("n_best", [None, 2])
def test_texts_with_codes_inside_are_aligned_as_they_are_translated(seq2seq: Any, n_best: int | None) -> None:
    translator = Translator(seq2seq.model, seq2seq.tokenizer)
    search = read_search(2, 1.0, "", n_best, {})
    work = plain_work(num_beams=2, prefix="") if search is None else searching_work(search)
    texts = ["A dog runs.", TextWithCodes("Two men talk."), TextWithCodes(""), "A dog"]
    plain = [text_of(result) for result in work(translator, texts, lambda place, what: None)]
    found = aligned_work(work, "")(translator, texts, lambda place, what: None)
    assert found == plain
    assert [isinstance(text, AlignedText) for text in found] == [False, bool(plain[1]), False, False]
    (expected,) = align(seq2seq.model, texts[1:2], plain[1:2], tokenizer=seq2seq.tokenizer)
    assert found[1].alignment == expected
