"""How likely given texts are, one by one: as the models' own losses have it."""

import copy
import io
from pathlib import Path
from typing import Any

import pytest
import torch

from paperformer import InputError, evaluate_text, log_probabilities
from paperformer.cli import main
from paperformer.decoding.log_probabilities import score_pairs
from paperformer.decoding.search import Search, search_texts
from paperformer.decoding.translator import Translator

SOURCES = ["A dog runs.", "", "Two men talk on the beach."]
TARGETS = ["Ein Hund läuft.", "Zwei", ""]


def ignore(index: int, what: str) -> None:
    pass


def test_pairs_have_the_loss_that_they_have_alone(one: Translator) -> None:
    found = score_pairs(one, SOURCES, TARGETS, ignore)
    for source, target, score in zip(SOURCES, TARGETS, found, strict=True):
        inputs = one.tokenizer(source, return_tensors="pt")
        labels = one.tokenizer(text_target=target, return_tensors="pt").input_ids
        with torch.no_grad():
            loss = float(one.model(**inputs, labels=labels).loss)
        assert score.tokens == labels.shape[1]
        assert score.mean == pytest.approx(-loss, rel=1e-4)
        assert score.log_probability == pytest.approx(-loss * score.tokens, rel=1e-4)


def test_hypotheses_have_the_same_scores(one: Translator) -> None:
    """Where a text is divided into tokens as it was written: here by force, with the end wherever it is free."""
    model: Any = copy.deepcopy(one.model)
    model.lm_head.bias = torch.nn.Parameter(30.0 * (torch.arange(model.config.vocab_size) == 2))
    translator = Translator(model, one.tokenizer)
    prefixes = ["Ein Hund läuft.", "Zwei", "Männer am Strand"]
    found = search_texts(translator, ["A dog"] * 3, ignore, Search(num_beams=1), target_prefixes=prefixes)
    assert [best.text for (best,) in found] == prefixes
    pairs = score_pairs(translator, ["A dog"] * 3, prefixes, ignore)
    assert [best.tokens for (best,) in found] == [pair.tokens for pair in pairs]
    expected = [pair.log_probability for pair in pairs]
    assert [best.log_probability for (best,) in found] == pytest.approx(expected, rel=1e-4)
    assert [best.score for (best,) in found] == pytest.approx([pair.mean for pair in pairs], rel=1e-4)


def test_texts_under_a_language_model_as_evaluation_has_them(lm: Any) -> None:
    texts = ["A dog runs.", "Two men talk on the beach. Two men talk.", "A"]
    for text, score in zip(texts, log_probabilities(lm.folder, texts), strict=True):
        loss = evaluate_text(lm.folder, text)[0]
        assert (score.tokens, score.mean) == (loss.count, pytest.approx(-loss.value, rel=1e-4))
    assert log_probabilities(lm.folder, [""])[0].tokens == 1  # the end mark


def test_what_is_too_long_is_scored_as_far_as_it_fits(one: Translator) -> None:
    notes: list[Any] = []
    (score,) = score_pairs(one, ["A dog."], ["Hund " * 90], lambda *note: notes.append(note))
    assert score.tokens == 64
    assert notes[0][0] == 0
    assert notes[0][1].endswith("and the model takes 64: the beginning was scored")


def test_the_command(seq2seq: Any, lm: Any, tmp_path: Path, capsys: Any, monkeypatch: Any, refused: Any) -> None:
    pairs, sources, targets, output = (tmp_path / name for name in ("pairs.tsv", "sources", "targets", "scores"))
    pairs.write_text("".join(f"{a}\t{b}\n" for a, b in zip(SOURCES, TARGETS, strict=True)), "utf-8")
    sources.write_text("".join(f"{line}\n" for line in SOURCES), "utf-8")
    targets.write_text("".join(f"{line}\n" for line in TARGETS), "utf-8")
    expected = "".join(
        f"{score.log_probability:.6f}\t{score.tokens}\t{score.mean:.6f}\n"
        for score in log_probabilities(seq2seq.folder, SOURCES, TARGETS)
    )
    main(["likelihood", str(seq2seq.folder), "--input", str(pairs), "--output", str(output)])
    assert output.read_text() == expected
    main(["likelihood", str(seq2seq.folder), "--input", str(sources), "--translations", str(targets)])
    assert capsys.readouterr().out == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A dog\n\nTwo men\n")))
    main(["likelihood", str(lm.folder)])
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [len(line) for line in lines] == [3, 3, 3]
    for line, score in zip(lines, log_probabilities(lm.folder, ["A dog", "", "Two men"]), strict=True):
        assert float(line[0]) == pytest.approx(score.log_probability, abs=1e-5)
    assert "--translations is given, and" in refused("likelihood", lm.folder, "--translations", targets)
    message = refused("likelihood", seq2seq.folder, "--input", sources)
    assert message.endswith("sources, line 1 has no tab; it must be a source, a tab and its translation, or give "
                            "--translations FILE")  # fmt: skip


def test_lists_that_do_not_belong_together(seq2seq: Any) -> None:
    with pytest.raises(InputError, match="there are 1 texts and 2 translations; each must have one"):
        log_probabilities(seq2seq.folder, ["a"], ["b", "c"])
    with pytest.raises(InputError, match="texts is one text; it must be a list of texts"):
        log_probabilities(seq2seq.folder, "a")
