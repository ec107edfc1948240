"""The pages of `paperformer runs --web` in a browser: what they show and what can be done, and that they ask nobody."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("selenium", reason="no selenium is installed, which drives the browser")

from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from paperformer.training.evaluation.evaluation_file import hash_pairs
from paperformer.training.reporting.report import write_report
from paperformer.training.reporting.runs_page import write_runs_page

from .browser import Page, contrast, emulate
from .demo.test_runs import write_run

HOSTILE = "</script><script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
NAME = "<img src=x onerror=\"document.title = 'run'\">"
MANY = 200


def finish(folder: Path, outputs: list[str]) -> None:
    """Makes a run finished, with the translations of its test split."""
    pairs = [[f"{number} {HOSTILE}", f"the reference {number} {HOSTILE}"] for number in range(len(outputs))]
    scores = {
        "task": "translation",
        "split": "test",
        "bleu": {"score": 12.5, "signature": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"},
        "sentences": len(outputs),
        "pairs_sha256": hash_pairs(pairs),
    }
    (folder / "model").mkdir()
    (folder / "evaluation").mkdir()
    for name, records in (("pairs", pairs), ("outputs", outputs)):
        text = "".join(json.dumps(record) + "\n" for record in records)
        (folder / "evaluation" / f"test.{name}.jsonl").write_text(text, "utf-8")
    (folder / "evaluation" / "evaluation.json").write_text(json.dumps({"test": scores}), "utf-8")
    chosen = {"step": 3000, "chosen": "step 3000", "select_by": "loss", "candidates": {"step 3000": 2.0}}
    speeds = [{"step": step, "tokens_per_second": 100.0, "seconds": 0.06 * step} for step in (1000, 2000, 3000)]
    with (folder / "metrics.jsonl").open("a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in [*speeds, chosen]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs, one that is damaged, one that is none, and many more."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / NAME, [4.0, 3.0, 2.0], sample=HOSTILE)
    finish(folder / NAME, [f"the reference {number}" for number in range(20)])
    write_run(folder / "two", [3.5, 2.5, 1.5], learning_rate=0.5, note=HOSTILE)
    finish(folder / "two", [f"a {HOSTILE} {number}" for number in range(20)])
    write_run(folder / "damaged", [])
    (folder / "damaged" / "metrics.jsonl").write_text("{\n")
    (folder / "nothing").mkdir()
    for number in range(4, MANY):
        run = folder / f"run-{number}"
        write_run(run, [number / 10, 5.0], learning_rate=number)
        (run / "report.html").write_text("")
    return folder


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    return write_report(folder / NAME)


@pytest.fixture(scope="module")
def all_runs(folder: Path, report: Path) -> Path:
    page, notes = write_runs_page(folder)
    assert notes == []
    return page


def visit(driver: Any, path: Path) -> Page:
    driver.get("about:blank")
    driver.get_log("performance"), driver.get_log("browser")
    driver.get(path.as_uri())
    return Page(driver)


def has_asked_nobody(page: Page) -> bool:
    here = page.driver.current_url
    assert page.complaints() == []
    return [url for url in page.asked() if url != here] == [] and page.driver.title != "run"


def test_a_curve_is_read_off(driver: Any, report: Path) -> None:
    page = visit(driver, report)
    curve = page.wait("svg.pf-live")
    curve.send_keys(Keys.HOME)
    assert curve.get_attribute("aria-valuetext") == "step 1,000: training 5, validation 4"
    curve.send_keys(Keys.ARROW_RIGHT)
    assert curve.get_attribute("aria-valuetext") == "step 2,000: training 4, validation 3"
    curve.send_keys(Keys.END)
    assert curve.get_attribute("aria-valuenow") == "3000"

    Select(page.wait(".pf-unit")).select_by_value("minutes")
    curve.send_keys(Keys.END)
    assert curve.get_attribute("aria-valuetext") == "3 minutes: training 3, validation 2"
    Select(page.wait(".pf-unit")).select_by_value("tokens")
    curve.send_keys(Keys.END)
    assert curve.get_attribute("aria-valuetext").startswith("18,000 tokens: ")
    Select(page.wait(".pf-unit")).select_by_value("steps")

    curve.send_keys(Keys.HOME)
    curve.send_keys("+")
    assert (field(page, "from"), field(page, "to")) == ("250", "1750")
    curve.send_keys(Keys.END)
    assert curve.get_attribute("aria-valuenow") == "1000"
    curve.send_keys(Keys.ESCAPE)
    assert (field(page, "from"), field(page, "to")) == ("", "")

    assert len(page.all("svg.pf-live polyline.pf-raw")) == 0
    page.wait(".pf-smoothing").send_keys(Keys.END)
    assert len(page.all("svg.pf-live polyline.pf-raw")) > 1
    curve.send_keys(Keys.END)
    weights = [0.99**2, 0.99, 1.0]
    smoothed = sum(weight * loss for weight, loss in zip(weights, (5, 4, 3), strict=True)) / sum(weights)
    assert f"training {smoothed:.5g}".rstrip("0") in curve.get_attribute("aria-valuetext")
    page.wait(".pf-smoothing").send_keys(Keys.HOME)

    line = "svg.pf-live polyline"
    before = driver.find_element(By.CSS_SELECTOR, line).get_attribute("points")
    page.click(".pf-scale input")
    assert driver.find_element(By.CSS_SELECTOR, line).get_attribute("points") != before
    page.click(".pf-legend input")  # of the training loss
    curve.send_keys(Keys.END)
    assert curve.get_attribute("aria-valuetext") == "step 3,000: validation 2"
    assert has_asked_nobody(page)


def field(page: Page, name: str) -> str:
    return str(page.driver.find_element(By.CSS_SELECTOR, f".pf-{name}").get_attribute("value"))


def test_a_pointer_reads_and_magnifies(driver: Any, report: Path) -> None:
    page = visit(driver, report)
    curve = page.wait("svg.pf-live")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", curve)
    ActionChains(driver, duration=20).move_to_element(curve).perform()
    assert page.wait(".pf-read", lambda each: each.text != "").text.startswith("step 1,000")
    ActionChains(driver, duration=20).click_and_hold().move_by_offset(60, 0).release().perform()
    assert 1000 < float(field(page, "from")) < float(field(page, "to")) < 3000
    ActionChains(driver, duration=20).double_click(curve).perform()
    assert field(page, "from") == ""


def test_without_scripts_and_on_paper(driver: Any, report: Path) -> None:
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = visit(driver, report)
        assert len(page.all("svg[role=img] polyline")) == 2  # what is flat counts as hidden
        assert page.all(".pf-tools, .pf-live") == []
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    page = visit(driver, report)
    table = driver.find_element(By.CSS_SELECTOR, ".pf-charts details table")
    assert not table.is_displayed()
    table.find_element(By.XPATH, "ancestor::details/summary").click()
    assert table.is_displayed()
    with emulate(driver, scheme="dark", medium="print"):
        assert driver.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") in WHITE
        assert page.all(".pf-tools, .pf-how, .pf-read, .pf-legend input") == []
        assert not table.is_displayed()
        assert driver.find_element(By.TAG_NAME, "pre").value_of_css_property("white-space") == "pre-wrap"
    paper = base64.b64decode(driver.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})["data"])
    assert len(re.findall(rb"/Type */Page\b", paper)) <= 3


WHITE = ("rgba(255, 255, 255, 1)", "rgb(255, 255, 255)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_on_a_phone_and_at_night(scheme: str, driver: Any, report: Path, all_runs: Path) -> None:
    with emulate(driver, width=360, scheme=scheme):
        for path in (report, all_runs):
            visit(driver, path)
            assert driver.execute_script("return document.documentElement.scrollWidth") <= 360
            body = driver.find_element(By.TAG_NAME, "body")
            for selector in (".quiet", "a", ".pf-legend label", "mark", ".pf-how"):
                for text in driver.find_elements(By.CSS_SELECTOR, selector)[:1]:
                    ground = text if selector == "mark" else body
                    assert contrast(text, ground, is_dark=scheme == "dark") >= 4.5


def test_all_runs_are_sorted_filtered_and_drawn(driver: Any, all_runs: Path) -> None:
    page = visit(driver, all_runs)
    assert page.wait("#count").text == f"{MANY} runs"
    assert all_runs.stat().st_size < 3_000_000
    links = driver.execute_script("return [...document.querySelectorAll('#runs a')].map((each) => each.href)")
    assert len(links) == MANY - 1  # of the folder that is no run there is none
    assert (all_runs.parent / NAME / "report.html").as_uri() in links
    assert (all_runs.parent / "damaged" / "report.html").is_file()

    def names() -> list[str]:
        script = (
            "return [...document.querySelectorAll('#runs tbody tr:not([hidden]) th')].map((each) => each.innerText)"
        )
        return [str(name).strip() for name in driver.execute_script(script)]

    def sort(title: str) -> None:
        page.click("#runs thead button", lambda each: each.text == title)

    assert sorted(names())[:2] == [NAME, "damaged"]
    sort("Loss, validation")
    assert names()[:2] == ["run-4", "run-5"]
    assert set(names()[-2:]) == {"damaged", "nothing"}  # what is not known is last
    sort("Loss, validation")
    assert names()[0] == "run-199"  # of those that end at 5.0, the newest
    sort("optimization.learning_rate")
    assert names()[:2] == ["two", "run-4"]

    page.type("#filter", "run-17 ")
    page.wait("#count", lambda each: each.text == f"11 of {MANY} runs")
    assert len(driver.find_elements(By.CSS_SELECTOR, "figure:first-child polyline")) == 11
    page.click("#runs tbody input")
    assert len(driver.find_elements(By.CSS_SELECTOR, "figure:first-child polyline")) == 10
    page.type("#filter", "", " ", Keys.BACKSPACE)
    Select(page.wait("#kind")).select_by_visible_text("damaged")
    page.wait("#count", lambda each: each.text == f"2 of {MANY} runs")
    assert has_asked_nobody(page)


def test_several_runs_against_the_first(driver: Any, folder: Path, report: Path) -> None:
    finish(folder / "run-5", [f"the reference {number} {HOSTILE}" for number in range(20)])
    path, _ = write_runs_page(folder, ["two", NAME, "run-5", "run-6"])
    page = visit(driver, path)
    text = page.wait("body").text
    assert "Is one better than two?" in text
    assert f"BLEU {NAME}" in text
    assert "0.0010 0.0020 worse nrefs:1" in text  # of the one that is named NAME
    assert "0.0010 0.0020 better nrefs:1" in text
    assert "run-6: whether a difference is more than chance is not tested: both have to be finished first." in text
    assert has_asked_nobody(page)
    path, _ = write_runs_page(folder, ["damaged", "two", NAME, "run-5"])
    assert "Is one better" not in path.read_text("utf-8")  # what they would be compared with is not there


def test_two_runs_beside_each_other(driver: Any, folder: Path, report: Path) -> None:
    path, _ = write_runs_page(folder, ["two", NAME])
    page = visit(driver, path)
    text = page.wait("body").text
    assert f"{NAME} beside two" in text
    assert "optimization.learning_rate 0.5" in text
    assert "BLEU" in text
    assert "0.0010 worse nrefs:1" in text
    assert "two is better: 15 of 20 sentences" in text
    assert HOSTILE in text
    curve = page.wait("svg.pf-live")
    curve.send_keys(Keys.END)
    said = curve.get_attribute("aria-valuetext")
    assert said == f"step 3,000: two, training 2.5, two, validation 1.5, {NAME}, training 3, {NAME}, validation 2"
    assert has_asked_nobody(page)
