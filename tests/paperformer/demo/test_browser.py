"""The page in a browser that reaches nothing but this machine: what it asks for, and what can be done with it."""

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the page needs gradio: pip install 'paperformer[demo]'")
pytest.importorskip("selenium", reason="no selenium is installed, which drives the browser")

import uvicorn
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from paperformer.demo.models import find_models
from paperformer.demo.pages import page as pages
from paperformer.serving.server import listen

from ..browser import Page, contrast, emulate
from .test_runs import add_step, write_run

HOSTILE = (
    "A dog <script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\"> "
    "${document.title = 'run'}"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "one", [4.0, 3.0])
    return folder


@pytest.fixture(scope="module")
def outside() -> Iterator[list[Any]]:
    """Addresses beyond this machine that this process has asked for."""
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        connect, resolve = socket.socket.connect, socket.getaddrinfo

        def watch_connect(self: socket.socket, address: Any) -> None:
            if self.family != socket.AF_UNIX and not str(address[0]).startswith(("127.", "::1", "localhost")):
                asked.append(address)
            connect(self, address)

        def watch_resolve(host: Any, *rest: Any, **options: Any) -> Any:
            if host not in (None, "", "127.0.0.1", "localhost", "::1", "0.0.0.0"):
                asked.append(host)
            return resolve(host, *rest, **options)

        patch.setattr(socket.socket, "connect", watch_connect)
        patch.setattr(socket, "getaddrinfo", watch_resolve)
        yield asked


@pytest.fixture(scope="module")
def address(seq2seq: Any, lm: Any, encoder: Any, runs: Path, outside: list[Any]) -> Iterator[str]:
    models = find_models([str(each.folder) for each in (seq2seq, lm, encoder)])
    with listen("127.0.0.1", 0) as listener, pages.own_files():
        application = pages.make_application(pages.build_page(models, runs), pages.hosts_of(listener))
        server = uvicorn.Server(uvicorn.Config(application, log_level="critical", timeout_graceful_shutdown=1))
        thread = Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        yield pages.address_of(listener)
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def page(driver: Any, address: str) -> Page:
    driver.get("about:blank")
    driver.get_log("performance"), driver.get_log("browser")  # those of the browser's own first page
    driver.get(address)
    page = Page(driver)
    page.wait("#pf-translate")
    return page


def test_a_first_visit_is_light(page: Page) -> None:
    """Without what the browser has kept: less than a megabyte, which a slow line brings in seconds."""
    page.received_bytes()
    page.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
    page.driver.refresh()
    page.wait("#pf-translate")
    page.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": False})
    assert 2e5 < page.received_bytes() < 1e6


def test_a_visit(page: Page, outside: list[Any], runs: Path, tmp_path: Path) -> None:
    """All tabs in turn; in the end, nothing was asked of anybody else, and nothing went wrong."""
    address = page.driver.current_url
    assert page.wait("#pf-translations .pf-empty").text == "The translation comes here."
    page.type("#pf-source textarea", HOSTILE, Keys.ENTER)
    page.wait(".pf-tree")
    assert "<script>" in page.wait(".pf-row[data-side=source]").text

    page.act(
        lambda word: page.driver.execute_script("arguments[0].focus()", word), ".pf-row[data-side=target] .pf-word"
    )
    page.wait(".pf-row[data-side=source] .pf-word", lambda each: "--weight" in _weight(each))
    before = [_weight(each) for each in page.all(".pf-row[data-side=source] .pf-word")]
    page.act(lambda field: field.send_keys("1"), "select.pf-head")
    page.wait("select.pf-head", lambda each: each.get_attribute("value") == "1")
    assert [_weight(each) for each in page.all(".pf-row[data-side=source] .pf-word")] != before
    page.act(lambda word: word.send_keys(Keys.ARROW_RIGHT), ".pf-row[data-side=source] .pf-word")
    assert page.driver.switch_to.active_element.get_attribute("data-place") == "1"

    page.type("#pf-source textarea", " ", Keys.ENTER)
    page.wait("#pf-translations .pf-failed")

    page.click("#pf-file-part button")
    (tmp_path / "rows.txt").write_text("A dog runs.\nTwo men talk.\n", "utf-8")
    field = "#pf-file-part input[type=file]"  # made when its part is opened
    page.act(lambda each: each.send_keys(str(tmp_path / "rows.txt")), field, seen=False)
    page.wait("#pf-file-part", lambda each: "rows" in each.text)
    page.click("#pf-translate-file")
    page.wait("#pf-file-said .pf-figures", lambda each: each.text == "2 lines translated")
    page.wait("#pf-file-result", lambda each: "rows.translated" in each.text)

    page.tab("Language model")
    page.type("#pf-prompt textarea", "A dog")
    page.click("#pf-one")
    page.wait(".pf-candidates .pf-chosen")
    page.click("#pf-write")
    page.wait(".pf-written .pf-token:nth-child(4)")
    page.click("#pf-stop")

    page.click("#pf-read-part button")
    page.type("#pf-pasted textarea", "")
    page.click("#pf-read")
    page.wait("#pf-heat .pf-failed", lambda each: "type some" in each.text)

    page.tab("Masks")
    page.click("#pf-fill")
    page.wait("#pf-fillings table")

    page.tab("Runs")
    page.wait(".pf-charts svg")
    add_step(runs / "one", 3000, 2.0)
    page.wait("#pf-run", lambda each: "ein Hund 3000" in each.text)

    assert page.driver.title == "paperformer"
    asked = page.asked()
    assert any(url.startswith(address) for url in asked)
    assert [url for url in asked if not url.startswith((address, "data:", "blob:"))] == []
    assert page.complaints() == []
    assert outside == []


def _weight(word: Any) -> str:
    return str(word.get_attribute("style"))


def test_a_phone(page: Page) -> None:
    """Nothing is wider than the screen; what has to be, scrolls by itself."""
    with emulate(page.driver, width=360):
        page.driver.refresh()
        page.click("#pf-translate")
        page.wait(".pf-tree")
        assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 360
        page.click(".overflow-menu > button")
        page.click(".overflow-dropdown button", lambda each: each.text.strip() == "Language model")
        page.click("#pf-one")
        table = page.wait(".pf-candidates")
        assert page.driver.execute_script("return arguments[0].getBoundingClientRect().right", table) <= 360


def test_dark_and_light(page: Page) -> None:
    """Both have text that can be read: the contrast is that of WCAG 2.2, level AA."""
    for scheme in ("light", "dark"):
        with emulate(page.driver, scheme=scheme):
            page.driver.refresh()
            hint = page.wait("#pf-translations .pf-state")
            body = page.driver.find_element(By.TAG_NAME, "body")
            assert contrast(hint, body, is_dark=scheme == "dark") >= 4.5
