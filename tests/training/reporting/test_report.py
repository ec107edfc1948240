import json
import math
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paperformer.training.console.input_error import InputError
from paperformer.training.reporting.curves import BOTTOM, LEFT, RIGHT, TOP
from paperformer.training.reporting.report import COLUMNS, build_report, write_report
from paperformer.training.reporting.templates import format_duration

from ...examples import examples

HOSTILE = "</td></table><h1 onclick='x'>\"torn\" & <script>alert(1)</script>"
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
VOID = {"meta", "br", "hr", "img", "input", "link"}


class Page(HTMLParser):
    """A page as a browser takes it; tags must match."""

    def __init__(self, html: str):
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []
        self.text = " ".join(" ".join(self.words).split())
        self.svgs = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    def chart(self, title: str) -> ElementTree.Element:
        """The drawing of the curves with this title."""
        (svg,) = [svg for svg in self.svgs if svg.get("aria-label", "").startswith(f"{title} by step: ")]
        return svg


def figures(step: int, **changes: Any) -> dict[str, Any]:
    return {
        "step": step,
        "loss": 8 / step,
        "learning_rate": 1e-4 * step,
        "gradient_norm": 0.5,
        "gradient_norm_by_layer": {"encoder.layers.0": 0.1, "norm": 0.4},
        "tokens_per_second": 1000.0,
        "padding": 0.04,
        "memory": 1_200_000_000,
        "flops": 4e12,
        "utilisation": 0.4,
        "seconds": 30.0 * step,
    } | changes


def metrics() -> list[dict[str, Any]]:
    """The records of a finished run."""
    return [
        {"step": 0, "hardware": "8 cores of Epyc", "processes": 2, "peak_flops": 1e12},
        figures(1),
        figures(2),
        {"step": 2, "validation": {"loss": 4.5, "bleu": 10.0}, "seconds": 60.0},
        {"step": 2, "hardware": "1 x H200", "processes": 1, "peak_flops": 1e12},
        figures(3),
        {
            "step": 2,
            "at_step": 4,
            "event": "spike",
            "action": "roll_back",
            "reason": "loss 9.000 is above 3.000, 6 standard deviations",
            "batch": {"epoch": 1, "pool": 0, "index": 7},
            "parameter": "model.norm.weight",
        },
        figures(3, loss=2.5, seconds=120.0),
        figures(4, seconds=150.0),
        {"step": 4, "validation": {"loss": 4.0, "bleu": 12.5}, "seconds": 150.0},
        {"step": 4, "chosen": "step 4", "select_by": "bleu", "candidates": {"step 4": 12.5}},
    ]


def evaluation(split: str) -> dict[str, Any]:
    return {
        "task": "translation",
        "split": split,
        "decoding": {"num_beams": 5},
        "bleu": {"score": 12.345, "signature": SIGNATURE},
        "sentences": 1000,
        "loss": {"nats_per_token": 4.2, "tokens": 9876},
        "seconds": 3.0,
    }


def lines(records: list[Any]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """The folder of a finished run, as far as the report reads it."""
    folder = tmp_path / "tiny"
    (folder / "evaluation").mkdir(parents=True)
    (folder / "model").mkdir()
    recipe = {
        "name": "tiny",
        "data": {"source_language": "en", "target_language": "de"},
        "optimization": {"max_steps": 4},
        "evaluation": {"select_by": "bleu"},
    }
    source = {"name": "corpora/train", "bad_lines": {"not UTF-8": 3}}
    cleaning = {"rows": 5000, "kept": 4990, "dropped": {"empty": 10, "too long": 0}}
    samples = [
        {"step": 2, "samples": [["A dog.", "Ein Hund.", "Ein Ein."], [HOSTILE, HOSTILE, HOSTILE]]},
        {"step": 4, "samples": [["A dog.", "Ein Hund.", "Ein Hund!"], [HOSTILE, HOSTILE, HOSTILE]]},
    ]
    for name, text in {
        "recipe.yaml": yaml.safe_dump(recipe),
        "metrics.jsonl": lines(metrics()),
        "samples.jsonl": lines(samples),
        "data.json": json.dumps({"train": {"sources": [source], "cleaning": cleaning}}),
        "evaluation/evaluation.json": json.dumps({split: evaluation(split) for split in ("validation", "test")}),
        "evaluation/samples.jsonl": lines([["A cat.", "Eine Katze.", "Ein Kater."]]),
    }.items():
        (folder / name).write_text(text, "utf-8")
    return folder


def report(folder: Path) -> Page:
    return Page(build_report(folder))


def test_a_finished_run_is_told_whole(run: Path) -> None:
    page = Page(write_report(run).read_text("utf-8"))
    assert (run / "report.html").is_file()
    for part in (
        "Translation; finished after 4 steps",
        f"BLEU 12.35 1,000 sentences, {SIGNATURE} num_beams 5",
        "Loss, nats a token 4.2000 9,876 tokens",
        "Weights: step 4, with a validation bleu of 12.5.",
        "4 spike roll back to step 2 loss 9.000 is above 3.000, 6 standard deviations model.norm.weight",
        "epoch 1, pool 0, index 7",
        "Started at step 0 on 8 cores of Epyc, 2 processes.",
        "Resumed at step 2 on 1 x H200.",
        "A dog. What the model made of it, by step. Step Output 2 Ein Ein. 4 Ein Hund! Reference Ein Hund.",
        "A cat. Eine Katze. Ein Kater.",
        "Training time 2 min 30 s",
        "about 150k target tokens",
        "1,000 target tokens a second",
        "40.0% of the peak speed",
        "1.2 GB at most",
        "8 cores of Epyc, then 1 x H200",
        "train corpora/train 5,000 4,990 10 empty, 3 not UTF-8",
        "source_language: en",
    ):
        assert part in page.text


def test_it_is_one_file_that_asks_nobody(run: Path) -> None:
    html = build_report(run)
    page = Page(html)
    assert not {tag for tag, _ in page.tags} & {"link", "img", "iframe", "object", "a"}
    assert not {
        name for _, attributes in page.tags for name in attributes if name in ("src", "href") or name[:2] == "on"
    }
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert "prefers-color-scheme: dark" in style
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags


def test_the_worst_and_the_best_sentences_are_shown(run: Path) -> None:
    pairs = [["eins", "a b c d"], ["zwei", "a b c d"], ["drei", HOSTILE]]
    (run / "evaluation/test.pairs.jsonl").write_text(lines(pairs))
    (run / "evaluation/test.outputs.jsonl").write_text(lines(["a b c d", "a x c d", "wrong"]))
    html = build_report(run)
    text = Page(html).text
    assert "The worst: 2 of 3 sentences line 3 chrF " in text
    assert "The best: 1 of 3 sentences line 1 chrF 100.0 source eins reference a b c d output a b c d" in text
    assert "a <mark>x</mark> c d" in html
    assert "a <mark>b</mark> c d" in html  # in the reference, what the output lacks
    assert "The worst" in text
    (run / "evaluation/test.pairs.jsonl").write_text("{")
    assert "evaluation is damaged" in report(run).text


def test_without_sentences_it_says_so(run: Path) -> None:
    assert "is not in the folder evaluation of this run" in report(run).text


def test_what_others_wrote_is_shown_and_not_interpreted(run: Path) -> None:
    plain = report(run)
    (run / "recipe.yaml").write_text((run / "recipe.yaml").read_text() + f"note: {HOSTILE!r}\n")
    changed = [
        record | {name: HOSTILE for name in ("hardware", "reason", "parameter") if name in record}
        for record in metrics()
    ]
    changed[1]["gradient_norm_by_layer"] = {HOSTILE: 0.3}
    changed[3]["validation"][HOSTILE] = changed[9]["validation"][HOSTILE] = 1.0
    (run / "metrics.jsonl").write_text(lines(changed))
    hostile = report(run.rename(run.with_name("<b>bold<b>")))
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in plain.tags}
    assert sum(tag == "h1" for tag, _ in hostile.tags) == 1
    assert "<b>bold<b>" in hostile.text
    assert hostile.text.count(" ".join(HOSTILE.split())) > plain.text.count(" ".join(HOSTILE.split())) > 3


def test_curves_are_where_their_values_are(run: Path) -> None:
    chart = report(run).chart("Loss, nats a token")
    steps = {t.text: float(t.get("x")) for t in chart.findall("text") if t.get("text-anchor") == "middle"}
    values = {t.text: float(t.get("y")) for t in chart.findall("text") if t.get("text-anchor") == "end"}
    training, validation = (
        [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        for line in chart.findall("polyline")
    )
    assert (steps["0"], steps["4"]) == (LEFT, RIGHT)
    assert (values["8"], values["2"]) == (TOP + 4, BOTTOM + 4)  # text stands a little below its line
    x0, x4 = steps["0"], steps["4"]
    y2, y8 = values["2"] - 4, values["8"] - 4
    for points, expected in (
        (training, {1: 8.0, 2: 4.0, 3: 2.5, 4: 2.0}),  # step 3 was done again after the roll-back
        (validation, {2: 4.5, 4: 4.0}),
    ):
        shown = [(4 * (x - x0) / (x4 - x0), 2 + 6 * (y - y2) / (y8 - y2)) for x, y in points]
        assert [step for step, _ in shown] == pytest.approx(list(expected), abs=0.02)
        assert [value for _, value in shown] == pytest.approx(list(expected.values()), abs=0.02)
    assert [float(line.get("y1")) for line in chart.findall("line")] == [y - 4 for y in values.values()]
    assert "training 8 at step 1 and 2 at step 4" in chart.get("aria-label")


def test_curves_go_from_left_to_right_past_what_is_not_finite(run: Path) -> None:
    steps = {3: 3.0, 1: 1.0, 2: math.nan, 5: math.inf, 4: 2.0}
    (run / "metrics.jsonl").write_text(lines([figures(step, loss=loss) for step, loss in steps.items()]))
    (curve,) = report(run).chart("Loss, nats a token").findall("polyline")
    xs = [float(point.split(",")[0]) for point in curve.get("points").split()]
    assert xs == pytest.approx([LEFT + (RIGHT - LEFT) * share for share in (0.25, 0.75, 1.0)], abs=0.1)


def test_every_chart_has_a_table(run: Path) -> None:
    page = report(run)
    titles = [svg.get("aria-label").partition(" by step: ")[0] for svg in page.svgs if svg.get("aria-label")]
    assert titles == [
        "Loss, nats a token",
        "Validation bleu",
        "Learning rate",
        "Gradient norm before clipping",
        "Speed, target tokens a second",
        "Model FLOPs utilisation, %",
        "Padding, % of all positions",
        "Memory, GB",
    ]
    for table in (
        "Loss, nats a token: training Step Value 1 8 2 4 3 2.5 4 2 ",
        "Loss, nats a token: validation Step Value 2 4.5 4 4 ",
        "Validation bleu Step Value 2 10 4 12.5 ",
        "Learning rate Step Value 1 0.0001 2 0.0002 ",
        "Padding, % of all positions Step Value 1 4 ",
        "Memory, GB Step Value 1 1.2 ",
        "Gradient norm by layer and step. Layer 1 2 3 4 encoder.layers.0 0.1 0.1 0.1 0.1 norm 0.4 ",
    ):
        assert table in page.text


def test_axes_of_amounts_begin_at_zero(run: Path) -> None:
    page = report(run)
    assert "0" in [text.text for text in page.chart("Memory, GB").findall("text") if text.get("text-anchor") == "end"]
    loss = [text.text for text in page.chart("Loss, nats a token").findall("text") if text.get("text-anchor") == "end"]
    assert loss == ["2", "4", "6", "8"]


def test_the_map_shades_by_norm_and_keeps_peaks(run: Path) -> None:
    steps = range(1, 10 * COLUMNS + 1)
    layers = [{"layers.0": 0.01, "layers.1": 1.0 if step == 77 else 0.1} for step in steps]
    layers[500]["layers.1"] = math.nan
    (run / "metrics.jsonl").write_text(
        lines([figures(step, gradient_norm_by_layer=norms) for step, norms in zip(steps, layers, strict=True)])
    )
    first, second = [svg for svg in report(run).svgs if svg.get("aria-hidden")]
    shades = [[float(rect.get("fill-opacity")) for rect in row.findall("rect")] for row in (first, second)]
    assert shades[0] == [0.06] * COLUMNS
    assert shades[1] == [0.53] * 7 + [1.0] + [0.53] * (COLUMNS - 8)  # 0.1 is half-way on a logarithmic scale
    assert second.findall("rect")[7].find("title").text == "step 80: 1"


def remove(*names: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        for name in names:
            path = run / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return change


def keep_records(count: int) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        (run / "metrics.jsonl").write_text(lines(metrics()[:count]))
        remove("evaluation", "model")(run)

    return change


def write(name: str, text: str) -> Callable[[Path], None]:
    return lambda run: (run / name).write_text(text) and None


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (keep_records(0), ["no step made yet", "There has been no validation yet", "Training has not begun"]),
        (keep_records(1), ["no step made yet", "There are not enough figures for a curve yet", "No loss spike"]),
        (keep_records(2), ["not finished: step 1 of 4", "There are not enough figures for a curve yet"]),
        (keep_records(3), ["There has been no validation yet"]),
        (keep_records(6), ["not finished: step 3 of 4", "best validation bleu so far is 10, at step 2"]),
        (remove("metrics.jsonl", "evaluation", "model"), ["no step made yet", "not recorded"]),
        (remove("samples.jsonl", "evaluation/samples.jsonl"), ["There are no sample outputs yet"]),
        (remove("data.json"), ["What the data was is not recorded"]),
        (
            write("data.json", '{"test": {"sources": [], "cleaning": {"rows": 1, "kept": 1, "dropped": {}}}}'),
            ["stream"],
        ),
        (remove("recipe.yaml"), ["not a run", "The folder has no recipe"]),
        (
            remove("recipe.yaml", "metrics.jsonl", "samples.jsonl", "data.json", "evaluation", "model"),
            ["not a run", "The test split has not been scored yet", "Training has not begun"],
        ),
        (write("metrics.jsonl", lines(metrics()) + '{"step": 5, "lo'), ["finished after 4 steps"]),
        (write("metrics.jsonl", "{\n"), ["damaged metrics.jsonl", "metrics.jsonl is damaged", "A dog."]),
        (write("metrics.jsonl", "[]\n7\n"), ["damaged metrics.jsonl"]),
        (write("samples.jsonl", "{\n"), ["samples.jsonl is damaged", "finished after 4 steps"]),
        (write("data.json", "{"), ["data.json is damaged", "finished after 4 steps"]),
        (write("evaluation/samples.jsonl", "{"), ["samples.jsonl is damaged"]),
        (write("evaluation/evaluation.json", "{"), ["damaged evaluation.json", "The test split has not been scored"]),
        (write("recipe.yaml", "name: tiny\n"), ["damaged recipe.yaml", "name: tiny"]),
    ],
)
def test_what_is_missing_or_damaged_is_told(change: Callable[[Path], None], parts: list[str], run: Path) -> None:
    change(run)
    page = report(run)
    for part in parts:
        assert part in page.text


def test_a_language_model_has_prompts(run: Path) -> None:
    recipe = {
        "data": {"language": "en", "context_length": 8},
        "optimization": {"max_steps": 4},
        "evaluation": {"select_by": "loss"},
    }
    (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    (run / "samples.jsonl").write_text(lines([{"step": 2, "samples": [["To be,", " or\n  not"]]}]))
    (run / "evaluation/samples.jsonl").write_text(lines([["To be,", " or"]]))
    html = build_report(run)
    page = Page(html)
    assert "Language model;" in page.text
    assert "To be, How the model went on, by step. Step Output 2 or not" in page.text
    assert " or\n  not<" in html  # white space is shown as it is
    assert "Prompt Continuation To be, or" in page.text
    assert "Reference" not in page.text


def test_a_disk_that_is_full_is_told_and_leaves_the_last_report(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_report(run)
    before = path.read_text("utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match=r"cannot write .*report\.html: No space left"):
        write_report(run)
    assert path.read_text("utf-8") == before


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(-1e30, 1e30) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FIELDS = {name for record in metrics() for name in record} | {"samples", "joules"}
MAY_DIVERGE = ["loss", "gradient_norm", "gradient_norm_by_layer", "validation"]
divergence = st.floats() | st.dictionaries(st.just("loss"), st.floats())
odd_records = st.lists(
    json_values
    | st.builds(
        lambda record, odd, diverged: record | odd | diverged,
        st.sampled_from(metrics()),
        st.dictionaries(st.sampled_from(sorted(FIELDS)), json_values, max_size=2),
        st.dictionaries(st.sampled_from(MAY_DIVERGE), divergence, max_size=1),
    ),
    max_size=6,
)


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records=odd_records, data=json_values)
def test_no_record_makes_it_fail(records: list[Any], data: Any, run: Path) -> None:
    for name in ("metrics.jsonl", "samples.jsonl", "evaluation/samples.jsonl"):
        (run / name).write_text(lines(records))
    (run / "data.json").write_text(json.dumps(data))
    assert "Recipe" in report(run).text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (59.6, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (4e6, "1,111 h 6 min")],
)
def test_durations_are_readable(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
