import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paperformer import evaluate_text
from paperformer.cli import main
from paperformer.training.run_folder import RunFolder

SOURCES = ["A dog runs.", "Two old men talk."]


@pytest.fixture(scope="module")
def outputs(seq2seq: Any, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the model makes of the sources."""
    from paperformer import translate

    return translate(seq2seq.folder, SOURCES, num_beams=2)


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Writes lines to a file of this name in the folder where commands run."""
    monkeypatch.chdir(tmp_path)

    def write(name: str, *content: str) -> str:
        Path(name).write_text("".join(f"{line}\n" for line in content), "utf-8")
        return name

    return write


def printed(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    main([*map(str, arguments), "--format", "json"])
    return json.loads(capsys.readouterr().out)


def test_evaluate_translates_and_scores(
    seq2seq: Any, outputs: list[str], lines: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    source, reference = lines("source", *SOURCES), lines("reference", *outputs)
    options = ["--num_beams", "2", "--resamples", "10"]
    scores = printed(capsys, "evaluate", seq2seq.folder, source, "--reference", reference, *options)
    assert (scores["exact_match"], scores["sentences"], scores["ter"]["score"]) == (100, 2, 0)
    assert scores["bleu"]["signature"].startswith("nrefs:1")
    assert scores["bleu"]["confidence"]["resamples"] == 10
    rows = [f"{one}\t{other}" for one, other in zip(SOURCES, outputs, strict=True)]
    pairs = lines("pairs.tsv", *rows)
    assert printed(capsys, "evaluate", seq2seq.folder, pairs, *options) == scores
    assert printed(capsys, "evaluate", seq2seq.folder, lines("header.tsv", "en\tde", *rows), *options) == scores
    several = printed(
        capsys, "evaluate", seq2seq.folder, source, "--reference", f"[{lines('other', 'x', 'y')},{reference}]", *options
    )
    assert several["exact_match"] == 100
    assert several["bleu"]["signature"].startswith("nrefs:2")
    main(["evaluate", str(seq2seq.folder), pairs, "--metrics", "[exact_match]", *options])
    assert "Exact match, %  100.00" in capsys.readouterr().out


def test_evaluate_beside_another_system(
    seq2seq: Any, outputs: list[str], lines: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    pairs = lines("pairs.tsv", *(f"{one}\t{other}" for one, other in zip(SOURCES, outputs, strict=True)))
    worse = lines("worse", "x", "y")
    options = ["--num_beams", "2", "--resamples", "10", "--output_dir", "out"]
    found = printed(capsys, "evaluate", seq2seq.folder, pairs, "--against", worse, *options)
    assert found["baseline"]["name"] == "worse"
    assert found["baseline"]["exact_match"] == 0
    assert found["comparisons"][0]["verdict"] in ("better", "no significant difference")
    assert json.loads(Path("out/evaluation.json").read_text("utf-8")) == found
    assert Path("out/hypotheses.txt").read_text("utf-8").splitlines() == outputs
    assert "worse" in Path("out/sentences.html").read_text("utf-8")
    assert "### " in Path("out/report.md").read_text("utf-8")
    records = [json.loads(line) for line in Path("out/sentences.jsonl").read_text("utf-8").splitlines()]
    assert [record["systems"]["worse"]["output"] for record in records] == ["x", "y"]
    itself = printed(capsys, "evaluate", seq2seq.folder, pairs, "--against", seq2seq.folder, *options)
    assert itself["baseline"]["name"] == f"{itself['name']} (baseline)"
    assert {comparison["p_value"] for comparison in itself["comparisons"]} == {1.0}


def test_score_needs_no_model(
    lines: Callable[..., str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hypotheses, reference = (
        lines("hyp", "ein Hund", "", "zwei Katzen"),
        lines("ref", "Ein Hund", "nichts", "zwei Katzen"),
    )
    scores = printed(capsys, "score", hypotheses, reference, "--resamples", "0")
    assert scores["sentences"] == 3
    assert scores["exact_match"] == pytest.approx(100 / 3)
    assert "confidence" not in scores["bleu"]
    lower = printed(
        capsys, "score", hypotheses, reference, "--lowercase", "--bleu_tokenizer", "none", "--resamples", "0"
    )
    assert lower["exact_match"] == pytest.approx(200 / 3)
    assert "tok:none" in lower["bleu"]["signature"]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(hypotheses).read_bytes())))
    piped = printed(capsys, "score", "-", reference, "--resamples", "0")
    assert piped == scores | {"name": "standard input"}
    strings = lines("out.jsonl", *(json.dumps(line) for line in ("ein Hund", "", "zwei Katzen")))
    of_strings = printed(capsys, "score", strings, reference, "--resamples", "0")
    assert of_strings | {"name": "hyp"} == scores
    main(
        ["score", hypotheses, reference, "--source", lines("src", "a dog", "nothing", "two cats"), "--resamples", "10"]
    )
    shown = capsys.readouterr().out
    assert "By the length of sources" in shown
    assert "source: a dog" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["h3", "r2"],
            "h3 has 3 lines and r2 has 2; line n of one must belong to line n of the other, which it ",
        ),
        (["h3", "blank"], "blank, line 2: there is no reference; every sentence needs one"),
        (["h3", "[]"], "--reference is an empty list; it must name a file of references"),
        (["h3", "h3", "--source", "r2"], "h3 has 3 lines and r2 has 2"),
        (["h3", "h3", "--against", "r2"], "h3 has 3 lines and r2 has 2"),
        (["empty", "empty"], "empty is empty; it must have text, a line at least"),
        (["h3", "h3", "--metrics", "[/no/metric.py]"], "--metrics: /no/metric.py cannot be loaded"),
        (["h3", "h3", "--comet", "no-such-comet"], "--comet: there is no program no-such-comet; COMET needs an "),
        (["h3", "h3", "--resamples", "-1"], "--resamples is -1; it must be at least 0"),
        (["h3", "h3", "--bleu_tokenizer", "moses"], "--bleu_tokenizer is moses; it must be 13a, none, intl, "),
        (["bad.jsonl", "h3"], "bad.jsonl, line 2 is no JSON string; it must be a translation in quotes"),
        (["h3", "h3", "--output_dir", "other"], "--output_dir other holds other things; give a folder that is new"),
    ],
)
def test_what_cannot_be_scored(
    arguments: list[str], message: str, lines: Callable[..., str], refused: Callable[..., str]
) -> None:
    lines("h3", "one", "two", "three")
    lines("r2", "one", "two")
    lines("blank", "one", " ", "three")
    lines("empty")
    lines("bad.jsonl", '"one"', "2", '"three"')
    Path("other").mkdir()
    lines("other/letter", "dear")
    assert message in refused("score", *arguments)
    assert Path("other/letter").is_file()


def test_evaluate_says_how_likely_a_text_is(
    lm: Any, seq2seq: Any, lines: Callable[..., str], capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    text = lines("text.txt", "A dog runs on the beach.", "Two men talk.")
    found = printed(capsys, "evaluate", lm.folder, text, "--context_length", "16", "--stride", "4")
    expected = {
        score.metric.entry: score for score in evaluate_text(lm.folder, Path(text), context_length=16, stride=4)
    }
    assert found["bits_per_byte"] == expected["bits_per_byte"].value
    assert found["windows"].startswith("context:16|stride:4")
    main(["evaluate", str(lm.folder), text, "--format", "markdown"])
    assert "| Bits a byte | " in capsys.readouterr().out
    main(["evaluate", str(lm.folder), text])
    assert "Bits a byte" in capsys.readouterr().out
    assert "--reference is given, and " in refused("evaluate", lm.folder, text, "--reference", text)
    assert "holds a text-generation model; it translates nothing" in refused(
        "evaluate", lm.folder, text, "--prefix", "a"
    )
    assert "--stride is given, and " in refused("evaluate", seq2seq.folder, text, "--stride", "2")
    assert "there is no nowhere.tsv" in refused("evaluate", seq2seq.folder, "nowhere.tsv")


def test_the_other_system_is_looked_at_before_anything_is_translated(
    lm: Any, seq2seq: Any, lines: Callable[..., str], refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paperformer.api.texts.translate", None)
    pairs = lines("pairs.tsv", "a\tb")
    assert "there is no folder ./nowhere" in refused("evaluate", seq2seq.folder, pairs, "--against", "./nowhere")
    assert "needs a translation model" in refused("evaluate", seq2seq.folder, pairs, "--against", lm.folder)


@pytest.mark.parametrize("card", [None, "no front matter", "---\n[: broken\n---\n", "---\nlanguage: en\n---\n"])
def test_a_card_that_says_no_languages_is_no_error(
    card: str | None, seq2seq: Any, lines: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    model = Path(shutil.copytree(seq2seq.folder, "copied"))
    (model / "README.md").unlink()
    if card is not None:
        (model / "README.md").write_text(card, "utf-8")
    pairs = lines("pairs.tsv", "source\ttarget", "a\tb")
    assert printed(capsys, "evaluate", model, pairs, "--num_beams", "1", "--resamples", "0")["sentences"] == 1


def test_text_that_seems_tokenised_is_said_once(
    lines: Callable[..., str], capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    texts = lines("texts", *(f"line {number} ." for number in range(600)))
    printed(capsys, "score", texts, texts, "--against", texts, "--resamples", "0", "--metrics", "[bleu]")
    assert caplog.text.count("tokenized period") == 2  # once for each system
    caplog.clear()
    printed(capsys, "score", texts, texts, "--resamples", "0", "--metrics", "[bleu]", "--bleu_tokenizer", "none")
    assert caplog.text == ""


METRIC = """
import datasets
import evaluate


class MeanLength(evaluate.Metric):
    def _info(self):
        text = datasets.Value("string")
        features = datasets.Features({"predictions": text, "references": text})
        return evaluate.MetricInfo(description="", citation="", features=features)

    def _compute(self, predictions, references):
        return {"characters": sum(map(len, predictions)) / len(predictions)}
"""


def test_a_metric_of_the_evaluate_library(lines: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    script, texts = lines("mean_length.py", METRIC), lines("texts", "abc", "d")
    found = printed(capsys, "score", texts, texts, "--metrics", f"[bleu,{script}]", "--resamples", "0")
    assert found[script] == {"characters": 2}
    assert "bleu" in found
    assert "chrf" not in found


def test_comet_runs_in_a_program_of_its_own(
    lines: Callable[..., str], capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    """One that answers as unbabel-comet's does."""
    answer = ["import sys", "print(open(sys.argv[2]).read())", "print('score: 0.8123')"]
    program = Path(lines("comet", f"#!{sys.executable}", *answer))
    program.chmod(0o755)
    texts = lines("texts", "abc", "d")
    command = ["score", texts, texts, "--comet", "./comet", "--resamples", "0"]
    assert printed(capsys, *command, "--source", texts)["comet"] == 0.8123
    assert "--comet needs the sources: give --source FILE" in refused(*command)
    program.write_text(f"#!{sys.executable}\nimport sys\nprint('score: 0.5')\nsys.exit(3)\n")
    assert "failed: score: 0.5" in refused(*command, "--source", texts)
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no such checkpoint')\n")
    assert "failed: no such checkpoint" in refused(*command, "--source", texts)


def test_sentences_that_the_model_was_trained_on_are_counted(
    seq2seq: Any, outputs: list[str], lines: Callable[..., str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    from paperformer import prepare
    from paperformer.training.recipe.run import RunOptions

    train = [f"{SOURCES[1].upper()}\tx", *(f"Sentence number {n} of many.\tSatz {n}." for n in range(60))]
    held_out = lines("held_out.tsv", "Something else here.\tEtwas anderes.")
    lines("train.tsv", *train)
    files = {"data.train": "train.tsv", "data.validation": held_out, "data.test": held_out}
    options = {"data.source_language": "en", "data.target_language": "de", "tokenizer.vocab_size": 300}
    prepared = prepare({"objective": "seq2seq", "name": "a", **files, **options})
    folder = RunFolder(RunOptions(name="a", output_dir="runs"))
    folder.path.mkdir(parents=True)
    folder.recipe_path.write_text("data: {cache_dir: null}\n")
    folder.data_path.write_text(json.dumps(prepared.report))
    shutil.copytree(seq2seq.folder, folder.model_path)
    pairs = lines("pairs.tsv", *(f"{one}\t{other}" for one, other in zip(SOURCES, outputs, strict=True)))
    command = ["evaluate", "runs/a", pairs, "--num_beams", "1", "--resamples", "0"]
    main(command)
    assert "warning: 1 of 2 sentences were in the training text of a (the source or the ref" in capsys.readouterr().err
    shutil.rmtree("runs/.cache")
    main(command)
    assert "warning" not in capsys.readouterr().err
