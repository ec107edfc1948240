"""A browser that reaches nothing but this machine, and a page as a visitor has it."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

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
SECONDS = 120.0


def start_browser(profile: Path) -> Any:
    """A browser with a profile of its own."""
    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if chromium is None or driver is None:
        pytest.skip("no chromium or no chromedriver is installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in [*OPTIONS, f"--user-data-dir={profile}"]:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


@contextmanager
def emulate(driver: Any, *, width: int = 0, scheme: str = "", medium: str = "") -> Iterator[None]:
    """A context in which the browser is that of a phone, is dark or light, or prints."""
    if width:
        screen = {"width": width, "height": 740, "deviceScaleFactor": 1, "mobile": True}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": medium, "features": features})
    try:
        yield
    finally:
        driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


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
        return [each["request"]["url"] for each in self._events("Network.requestWillBeSent")]

    def received_bytes(self) -> int:
        """How much came over the network, compressed as it was."""
        return sum(each["encodedDataLength"] for each in self._events("Network.loadingFinished"))

    def _events(self, method: str) -> list[dict[str, Any]]:
        """What happened since this was asked last."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        return [event["params"] for event in events if event["method"] == method]

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]


def contrast(text: Any, ground: Any, *, is_dark: bool) -> float:
    """Of the colour of one element and the background of another, by WCAG 2.2; the right way round."""
    values = _luminance(text, "color"), _luminance(ground, "background-color")
    assert (values[0] > values[1]) == is_dark
    return (max(values) + 0.05) / (min(values) + 0.05)


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
