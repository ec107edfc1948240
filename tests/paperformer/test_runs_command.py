import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ftfy.formatting import monospaced_width

from paperformer.cli import main

Refused = Callable[..., str]
Run = Callable[..., Path]
LONG = "a-name-that-is-much-longer-than-a-column-may-be-on-a-screen"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "runs").mkdir()
    return tmp_path / "runs"


@pytest.fixture
def run(folder: Path) -> Run:
    """Writes what a run leaves behind; later ones are newer."""
    count = iter(range(1, 99))

    def make(
        name: str, losses: list[float], *, bleu: float | None = None, more: list[Any] | None = None, **sections: Any
    ) -> Path:
        path = folder / name
        (path / "evaluation").mkdir(parents=True)
        recipe: dict[str, Any] = {
            "name": name,
            "output_dir": "runs",
            "data": {"dataset": "text", "source_language": "en", "target_language": "de", "max_length": 128},
            "optimization": {"max_steps": 3000, "learning_rate": 0.001},
            "evaluation": {"select_by": "loss"},
        }
        for section, fields in sections.items():
            recipe[section] = recipe.get(section, {}) | fields
        (path / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), "utf-8")
        records: list[dict[str, Any]] = [{"step": 0, "hardware": "2 cores of a processor", "energy": "by guess"}]
        for index, loss in enumerate(losses):
            step = 1000 * (index + 1)
            records.append({"step": step, "loss": 5.0, "tokens_per_second": 1234.5, "seconds": 90.0 * step / 1000})
            records.append({"step": step, "validation": {"loss": loss, "chrf": 10 * loss}, "seconds": 1.0})
        records += more or []
        if bleu is not None:
            best = min(losses)
            chosen = {"step": step, "chosen": "step 9", "select_by": "loss", "candidates": {"step 9": best}}
            records.append(chosen)
            (path / "model").mkdir()
            score = {"score": bleu, "signature": "nrefs:1"}
            test = {"task": "translation", "split": "test", "sentences": 1000, "bleu": score}
            (path / "evaluation" / "evaluation.json").write_text(json.dumps({"test": test}), "utf-8")
        metrics = path / "metrics.jsonl"
        metrics.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")
        time = 86400 * 365.25 * next(count)
        os.utime(metrics, (time, time))
        return path

    return make


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main(["runs", *arguments])
    said = capsys.readouterr()
    assert said.err == ""
    return said.out


def test_a_table_of_all_runs_newest_first(
    run: Run, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    run("first", [4.0, 2.5, 3.0], bleu=12.345)
    run("second", [4.0, 3.25])
    (run("third", []) / "recipe.yaml").write_text("[]")
    (folder / "photos").mkdir()
    lines = [line.split("  ") for line in shown(capsys).splitlines()]
    rows = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert rows[0] == ["run", "task", "steps", "validation", "test", "changed", "minutes", "tokens/s", "parameters"]
    by_name = {row[0]: row[1:] for row in rows[1:]}
    assert by_name["first"] == [
        "translation",
        "finished, 3,000",
        "loss 2.500",
        "bleu 12.345",
        "1971-01-01",
        "4.5",
        "1,234",
    ]
    assert by_name["second"] == ["translation", "2,000 of 3,000", "loss 3.250", "1972-01-01", "3.0", "1,234"]
    assert by_name["third"][0] == "damaged recipe.yaml"
    assert by_name["photos"][0] == "not a run"
    assert [name for name in by_name if name in ("first", "second")] == ["second", "first"]


@pytest.mark.parametrize(("columns", "width"), [(20, 80), (80, 80), (100, 100), (500, 120)])
def test_lines_fit_the_screen(
    run: Run, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    names = [LONG, "长的名字" * 15, "zäh-und-länger " * 6, "short"]
    for index, name in enumerate(names):
        event = {"step": 2000, "event": "spike", "action": "warn", "reason": "far above the mean of the last " * 6}
        text = {"dataset": f"/a/long/path/{index}" * 12}
        run(name, [4.0, 2.5], bleu=123.456, more=[event], data=text)
    for arguments in ([], [names[0]], [names[1]], names):
        output = shown(capsys, *arguments)
        widths = [monospaced_width(line) for line in output.splitlines()]
        assert max(widths) <= width
        assert max(widths) > width - 25


def test_names_of_any_script_are_aligned(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("abc", "文文文", "größe", "e\u0301te\u0301", "a\tb"):
        run(name, [4.0, 2.5])
    header, *lines = shown(capsys).splitlines()
    assert {monospaced_width(line[: line.index("translation")]) for line in lines} == {header.index("task")}


def test_no_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == "no runs in runs\n"


def test_one_run_in_full(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    events = [
        {"step": 2000, "event": "spike", "action": "warn", "reason": "9.1 deviations above"},
        {"step": 2000, "at_step": 2500, "event": "non_finite", "action": "roll_back", "reason": "a gradient"},
        {"step": 3000, "loss": 4.0, "flops": 10, "utilisation": 0.25, "joules": 7.2e6, "seconds": 270.0},
    ]
    run("mine", [4.0, 2.5, 3.0], bleu=12.25, more=events)
    out = shown(capsys, "mine")
    for line in (
        "steps        finished, 3,000",
        "hardware     2 cores of a processor",
        "minutes      4.5",
        "tokens/s     1,234",
        "utilisation  25.0% of peak FLOPs",
        "energy       2 kWh, by guess",
        "weights      step 9",
        "  data.dataset           text",
        "  optimization.max_steps 3000",
        "   step      loss     chrf",
        "  1,000    4.0000  40.0000",
        "  2,000  * 2.5000  25.0000",
        "  3,000    3.0000  30.0000",
        "  BLEU  12.25  (1,000 sentences, nrefs:1)",
        "  step 2,000  spike, warn, 9.1 deviations above",
        "  step 2,500  non_finite, roll_back, a gradient",
    ):
        assert " ".join(line.split()) in [" ".join(shown.split()) for shown in out.splitlines()], line
    assert "learning_rate" not in out  # at its default


def test_a_run_that_is_not_finished(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("mine", [4.0, 2.5])
    out = shown(capsys, "mine")
    assert "2,000 of 3,000, running or interrupted" in out
    assert not any(word in out for word in ("\ntest\n", "weights", "energy", "utilisation", "events"))


def test_long_curves_are_thinned_out(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    losses = [9.0] * 101
    losses[37] = 1.5
    run("mine", losses)
    rows = [line for line in shown(capsys, "mine").splitlines() if line.endswith((" 90.0000", " 15.0000"))]
    assert len(rows) <= 22
    assert " ".join(rows[0].split()) == "1,000 9.0000 90.0000"
    assert " ".join(rows[-1].split()) == "101,000 9.0000 90.0000"
    assert ["38,000", "*", "1.5000", "15.0000"] in [row.split() for row in rows]


def test_several_runs_side_by_side(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("a", [4.0, 2.5], bleu=12.0)
    run("b", [4.0, 2.0], bleu=11.0, optimization={"learning_rate": 0.01}, data={"max_length": 64})
    run("c", [4.0, 3.0], optimization={"learning_rate": 0.01, "schedule": "cosine"}, data={"max_length": 64})
    rows = [line.split() for line in shown(capsys, "a", "b", "c").splitlines()]
    assert ["a", "b", "c"] in rows
    assert ["validation", "loss", "2.5000", "2.0000", "3.0000"] in rows  # of other tokens, perhaps
    assert ["test", "bleu", "*", "12.00", "11.00"] in rows
    assert ["optimization.learning_rate", "0.001", "0.01", "0.01"] in rows
    assert ["optimization.schedule", "cosine"] in rows
    assert ["data.max_length", "128", "64", "64"] in rows
    assert not any(row and row[0] in ("data.dataset", "evaluation.select_by", "name") for row in rows)
    notes = [" ".join(row) for row in rows]
    assert "* the best" in notes
    assert "validation loss is not measured on the same text in the same way: no best" in notes
    rows = [line.split() for line in shown(capsys, "b", "c").splitlines()]
    assert ["validation", "loss", "*", "2.0000", "3.0000"] in rows
    assert rows[0] == ["b", "c"]


def test_json(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    run("größe", [4.0, float("nan")])
    run("b", [4.0, 2.0], bleu=11.0)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    records = {}
    for arguments in (["--json"], ["größe", "b", "--json", "true"]):
        text = shown(capsys, *arguments)
        records = {record["name"]: record for record in json.loads(text, parse_constant=refuse)}
        assert "größe" in text
        assert set(records) == {"größe", "b"}
    assert records["größe"]["validation"] == {"1000": {"loss": 4, "chrf": 40}, "2000": {"loss": None, "chrf": None}}
    assert records["b"]["test"][0]["value"] == 11
    assert records["b"]["state"] == "finished, 2,000"
    assert records["b"]["recipe"]["data.max_length"] == 128


def test_reports(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [run(name, [4.0, 2.0]) for name in ("a", "b", "c")]
    assert shown(capsys, "c", "a", "--report") == "runs/c/report.html\nruns/a/report.html\n"
    assert [(path / "report.html").is_file() for path in paths] == [True, False, True]


def test_bad_command_lines(run: Run, refused: Refused, folder: Path) -> None:
    run("multi30k", [4.0])
    assert refused("runs", "multi3k") == "there is no run multi3k in runs; did you mean multi30k?"
    assert refused("runs", "--report") == "--report needs the name of a run, or several"
    assert refused("runs", "--output_dir", "nowhere").startswith("there is no folder nowhere; ")
    (folder / "photos").mkdir()
    assert refused("runs", "photos", "multi30k") == "runs/photos cannot be shown: not a run"
    (folder / "multi30k" / "metrics.jsonl").write_text("x\n")
    assert refused("runs", "multi30k") == "runs/multi30k cannot be shown: damaged metrics.jsonl"
    assert "--jsn" in refused("runs", "--jsn")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a browser was asked to open, on a machine that has one."""
    addresses: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: not addresses.append(address))
    for name in ("SSH_CONNECTION", "SSH_TTY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DISPLAY", ":0")
    return addresses


@pytest.mark.parametrize(
    ("names", "page"),
    [
        ([], "runs.html"),
        (["first"], "first/report.html"),
        (["first", "second"], "comparison.html"),
        (["first", "sweep/third"], "comparison.html"),
    ],
)
def test_a_page_is_written_and_opened(
    names: list[str], page: str, run: Run, folder: Path, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second", "sweep/third"):
        run(name, [4.0, 2.5])
    assert shown(capsys, *names, "--web") == f"runs/{page}\n"
    assert opened == [(folder / page).as_uri()]
    assert (folder / page).read_text("utf-8").startswith("<!DOCTYPE html>")
    if page == "runs.html":
        text = (folder / page).read_text("utf-8")
        assert all(f'<a href="{name}/report.html">{name}</a>' in text for name in ("first", "second", "sweep/third"))
        assert (folder / "sweep/third/report.html").is_file()


def test_reports_are_written_anew_only_when_there_is_something_new(
    run: Run, folder: Path, opened: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = run("first", [4.0, 2.5])
    run("second", [4.0])
    shown(capsys, "--web")
    report = path / "report.html"
    report.write_text("kept", "utf-8")
    shown(capsys, "--web")
    assert report.read_text("utf-8") == "kept"
    later = report.stat().st_mtime + 10
    os.utime(path / "metrics.jsonl", (later, later))
    shown(capsys, "--web")
    assert report.read_text("utf-8") != "kept"


@pytest.mark.parametrize("remote", [{"SSH_CONNECTION": "1"}, {"DISPLAY": ""}])
def test_without_a_browser_it_says_where_the_page_is(
    remote: dict[str, str],
    run: Run,
    opened: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("first", [4.0])
    for name, value in remote.items():
        monkeypatch.setenv(name, value)
    main(["runs", "--web"])
    said = capsys.readouterr()
    assert (said.out, opened) == ("runs/runs.html\n", [])
    assert said.err == "there is no browser here; open that file where there is one\n"


def test_a_page_is_no_json(run: Run, refused: Refused) -> None:
    run("first", [4.0])
    assert "--web is a page of its own" in refused("runs", "--web", "--json")
    assert "there is no run frist in runs; did you mean first?" in refused("runs", "frist", "first", "--web")
    for outside in ("../runs/first", str(Path("runs/first").resolve())):
        assert f"there is no run {outside}" in refused("runs", outside, "--web")
