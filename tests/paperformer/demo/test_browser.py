"""The page in a browser that reaches nothing but this machine: what it asks for, and what can be done with it."""

import json
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the page needs gradio: pip install 'paperformer[demo]'")
webdriver = pytest.importorskip("selenium.webdriver", reason="no selenium is installed, which drives the browser")
CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
if CHROMIUM is None or DRIVER is None:
    pytest.skip("no chromium or no chromedriver is installed", allow_module_level=True)

import uvicorn  # noqa: E402
from selenium.common.exceptions import WebDriverException  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from paperformer.demo.models import find_models  # noqa: E402
from paperformer.demo.pages import page as pages  # noqa: E402
from paperformer.serving.server import listen  # noqa: E402

from .test_runs import add_step, write_run  # noqa: E402

OPTIONS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1200,1000",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
]
HOSTILE = (
    "A dog <script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\"> "
    "${document.title = 'run'}"
)
SECONDS = 120.0


class Page:
    """The page as a visitor has it."""

    def __init__(self, driver: Any):
        self.driver = driver

    def all(self, selector: str) -> list[Any]:
        """What is there and can be seen."""
        return [each for each in self.driver.find_elements(By.CSS_SELECTOR, selector) if each.is_displayed()]

    def wait(self, selector: str, when: Callable[[Any], bool] = lambda _: True, seen: bool = True) -> Any:
        """What is there, as soon as it is; not `seen`: also what is hidden, as fields for files are."""
        return self.act(lambda element: element, selector, when, seen)

    def act(
        self,
        action: Callable[[Any], Any],
        selector: str,
        when: Callable[[Any], bool] = lambda _: True,
        seen: bool = True,
    ) -> Any:
        """Does something with what is there, as soon as it is; again with its successor, where it was just replaced."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                elements = self.all(selector) if seen else self.driver.find_elements(By.CSS_SELECTOR, selector)
                if found := [each for each in elements if when(each)]:
                    return action(found[0])
            except WebDriverException:
                pass
            time.sleep(0.05)
        raise AssertionError(f"there is no {selector}")

    def click(self, selector: str, when: Callable[[Any], bool] = lambda _: True) -> None:
        def press(element: Any) -> None:
            self.driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
            element.click()

        self.act(press, selector, when)

    def tab(self, title: str) -> None:
        self.click("button[role=tab]", lambda each: each.text.strip() == title)

    def type(self, selector: str, text: str, *keys: str) -> None:
        def fill(field: Any) -> None:
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(Keys.DELETE)
            field.send_keys(text, *keys)

        self.act(fill, selector)

    def asked(self) -> list[str]:
        """All that was asked for, be it refused or not."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


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


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for option in [*OPTIONS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture
def page(driver: Any, address: str) -> Page:
    driver.get("about:blank")
    driver.get_log("performance"), driver.get_log("browser")  # those of the browser's own first page
    driver.get(address)
    page = Page(driver)
    page.wait("#pf-translate")
    return page


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
    screen = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    page.driver.refresh()
    page.click("#pf-translate")
    page.wait(".pf-tree")
    assert page.driver.execute_script("return document.documentElement.scrollWidth") <= 360
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_and_light(page: Page) -> None:
    """Both have text that can be read: the contrast is that of WCAG 2.2, level AA."""
    for scheme in ("light", "dark"):
        feature = {"name": "prefers-color-scheme", "value": scheme}
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        page.driver.refresh()
        hint = page.wait("#pf-translations .pf-state")
        body = page.driver.find_element(By.TAG_NAME, "body")
        text, ground = _luminance(hint, "color"), _luminance(body, "background-color")
        assert (text < ground) == (scheme == "light")
        assert (max(text, ground) + 0.05) / (min(text, ground) + 0.05) >= 4.5


def _luminance(element: Any, name: str) -> float:
    """Relative, from 0 to 1 (WCAG 2.2)."""
    from selenium.webdriver.support.color import Color

    def linear(part: int) -> float:
        share = part / 255
        return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4

    color = Color.from_string(element.value_of_css_property(name))
    return sum(
        weight * linear(part)
        for weight, part in zip((0.2126, 0.7152, 0.0722), (color.red, color.green, color.blue), strict=True)
    )
