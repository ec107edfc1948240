"""Several translations with scores: those of transformers' own search, and of teacher forcing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.generation import GenerationMixin

from paperformer import translate
from paperformer.cli import main
from paperformer.decoding.n_best import Hypothesis, as_json, as_line, as_n_best, join_pieces, line_of_n_best
from paperformer.decoding.search import Search, search_texts
from paperformer.decoding.translator import Translator
from paperformer.modeling.decoding.beam_search import BeamSearchMixin
from paperformer.training.evaluation.decoding import source_batches
from paperformer.translation.line_output import OutputFile

SOURCES = ["A dog runs.", "", "Two men talk on the beach.", "A dog talk."]


def ignore(index: int, what: str) -> None:
    pass


@pytest.mark.parametrize("length_penalty", [1.0, 0.0, 2.0])
def test_scores_are_those_of_transformers_beam_search(one: Translator, length_penalty: float) -> None:
    (batch,) = source_batches(one.model, one.tokenizer, SOURCES[:1], max_length=64, hypotheses=4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BeamSearchMixin, "_beam_search", GenerationMixin._beam_search)
        expected = one.model.generate(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            num_beams=4,
            num_return_sequences=4,
            do_sample=False,
            length_penalty=length_penalty,
            max_new_tokens=batch.max_new_tokens,
            return_dict_in_generate=True,
            output_scores=True,
        )
    search = Search(num_beams=4, n_best=4, length_penalty=length_penalty)
    (found,) = search_texts(one, SOURCES[:1], ignore, search)
    assert [each.text for each in found] == one.tokenizer.batch_decode(expected.sequences, skip_special_tokens=True)
    assert [each.score for each in found] == pytest.approx(expected.sequences_scores.tolist(), rel=1e-4)


def test_log_probabilities_are_those_of_teacher_forcing(one: Translator) -> None:
    """Of the tokens that were written, which are not always those that the text would be divided into."""
    (found,) = search_texts(one, SOURCES[:1], ignore, Search(num_beams=3, n_best=2))
    (batch,) = source_batches(one.model, one.tokenizer, SOURCES[:1], max_length=64, hypotheses=3)
    written = one.model.generate(
        input_ids=batch.input_ids, num_beams=3, num_return_sequences=2, do_sample=False,
        max_new_tokens=batch.max_new_tokens,
    )  # fmt: skip
    for hypothesis, ids in zip(found, written, strict=True):
        labels = ids[None, 1:].masked_fill(ids[None, 1:] == 0, -100)
        with torch.no_grad():
            loss = one.model(input_ids=batch.input_ids, labels=labels).loss
        assert hypothesis.tokens == (labels != -100).sum()
        assert hypothesis.log_probability == pytest.approx(-float(loss) * hypothesis.tokens, rel=1e-4)


@pytest.mark.parametrize("search", [Search(n_best=3), Search(num_beams=1), Search(mbr=4, n_best=2, seed=5)])
def test_a_text_has_the_same_hypotheses_as_if_it_were_alone(one: Translator, search: Search) -> None:
    together = search_texts(one, SOURCES, ignore, search)
    assert [len(hypotheses) <= search.n_best for hypotheses in together] == [True] * 4
    assert [hypotheses[0].text != "" for hypotheses in together] == [True, False, True, True]
    for text, hypotheses in zip(SOURCES, together, strict=True):
        (alone,) = search_texts(one, [text], ignore, search)
        assert [each.text for each in alone] == [each.text for each in hypotheses]
        scores = [each.log_probability for each in hypotheses]
        assert [each.log_probability for each in alone] == pytest.approx(scores, rel=1e-4)


def test_a_long_text_has_the_hypotheses_of_its_pieces_together(one: Translator) -> None:
    notes: list[tuple[int, str]] = []
    long = "A dog runs. " * 30
    (found,) = search_texts(one, [long], lambda *note: notes.append(note), Search(n_best=3))
    (piece,) = search_texts(one, ["A dog runs."], ignore, Search(n_best=3))
    assert found[0].text == " ".join([piece[0].text] * 30)
    assert found[0].log_probability == pytest.approx(30 * piece[0].log_probability, rel=1e-3)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    assert len({each.text for each in found}) == 3
    ((index, what),) = notes
    assert index == 0
    assert what.endswith("translated in 30 pieces")


def hypothesis(text: str, score: float, **others: Any) -> Hypothesis:
    return Hypothesis(text=text, log_probability=score, tokens=1, score=score, **others)


def test_the_best_of_all_ways_to_put_pieces_together_are_kept() -> None:
    pieces = [[hypothesis("a", -1.0), hypothesis("b", -1.5)], [hypothesis("x", -2.0), hypothesis("y", -2.2)]]
    joined = join_pieces(pieces, [0, 1], 3, lambda both: both.log_probability)
    assert [(each.text, each.score) for each in joined] == [("a x", -3.0), ("a y", -3.2), ("b x", -3.5)]
    aligned = [[hypothesis("a b", -1.0, alignment=((0, 0), (1, 1)))], [hypothesis("c", -1.0, alignment=((0, 0),))]]
    assert join_pieces(aligned, [0, 7], 1, lambda both: 0.0)[0].alignment == ((0, 0), (1, 1), (7, 2))


def test_how_files_have_them() -> None:
    found = [hypothesis("a\nb", -0.25, alignment=((0, 0), (1, 2))), hypothesis("c", -1.0)]
    assert as_n_best(3, found) == "2 ||| a b ||| -0.250000 ||| 0-0 1-2\n2 ||| c ||| -1.000000"
    assert as_line(3, found) == "a b ||| 0-0 1-2"
    written = json.loads(as_json(3, found))
    assert written["index"] == 2
    assert written["hypotheses"][0] == {
        "text": "a\nb", "log_probability": -0.25, "tokens": 1, "score": -0.25, "alignment": [[0, 0], [1, 2]],
    }  # fmt: skip
    assert written["hypotheses"][1].keys() == {"text", "log_probability", "tokens", "score"}


def test_a_file_of_several_lines_an_item_goes_on_from_its_last_item(tmp_path: Path) -> None:
    path = tmp_path / "out"
    interrupted = OutputFile(path, {}, record_of=line_of_n_best)
    interrupted.write(["0 ||| a ||| 1\n0 ||| b ||| 2", "1 ||| c ||| 3\n1 ||| d ||| 4"])
    with (tmp_path / "out.part").open("ab") as part:
        part.write(b"2 ||| e ||| 1\n2 ||| f")  # cut off in the middle
    interrupted._held.close()  # as a kill does
    with OutputFile(path, {}, record_of=line_of_n_best) as file:
        assert file.done == 2
        file.write(["2 ||| e ||| 1\n2 ||| f ||| 2"])
    assert path.read_text() == (
        "0 ||| a ||| 1\n0 ||| b ||| 2\n1 ||| c ||| 3\n1 ||| d ||| 4\n2 ||| e ||| 1\n2 ||| f ||| 2\n"
    )


def test_in_python_and_on_the_command_line(seq2seq: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "source"
    source.write_text("A dog runs.\n\nTwo men talk.\n", "utf-8")
    found = translate(seq2seq.folder, ["A dog runs.", "", "Two men talk."], 3, n_best=2)
    assert [each.text for each in found[0]][:1] == translate(seq2seq.folder, ["A dog runs."], 3)
    options = ["--input", str(source), "--num_beams", "3", "--n_best", "2"]
    main(["translate", str(seq2seq.folder), *options])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ||| ")[0] for line in lines] == ["0", "0", "1", "2", "2"]
    main(["translate", str(seq2seq.folder), *options, "--n_best_format", "json"])
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["index"] for record in records] == [0, 1, 2]
    assert [each["score"] for each in records[2]["hypotheses"]] == pytest.approx([each.score for each in found[2]])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--n_best", "7", "--num_beams", "5"],
            "n_best is 7 and num_beams is 5; give --num_beams 7 or more, since no more translations ",
        ),
        (["--n_best", "0"], "n_best is 0; it must be at least 1"),
        (["--n_best_format", "json"], "n_best_format is json, and there is no n_best; give --n_best 1 or more"),
        (["--mbr", "0"], "mbr is 0; it must be at least 1"),
        (["--mbr", "2", "--epsilon", "1"], "epsilon is 1.0; it must be at least 0 and less than 1"),
        (["--ensemble", "a,,b"], "ensemble is a,,b; it must be models with commas between"),
        (["--processes", "0"], "processes is 0; it must be at least 1"),
        (
            ["--target_prefix", "a", "--target_prefixes", "b"],
            "target_prefix and target_prefixes are both given",
        ),
        (["--glossary", "nowhere.tsv"], "nowhere.tsv"),
        (["--input", "app.po", "--n_best", "2"], "--n_best is for lines of text, and app.po is gettext; leave it out"),
    ],
)
def test_what_cannot_be(refused: Any, options: list[str], message: str) -> None:
    assert message in refused("translate", "model", *options)
