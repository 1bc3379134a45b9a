"""Debian's Chromium without a screen, as somebody who reads the page and types."""

import base64
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from tests.e2e.yard import until

NEEDS = "a browser is missing; on Debian: apt-get install chromium chromium-driver"
SCREENSHOTS = "GPUYARD_TEST_SCREENSHOTS"
SECONDS = 60.0
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--window-size=1100,900",
)


class Browser:
    """One tab. Elements are named by CSS selectors."""

    def __init__(self, driver: Chrome, url: str) -> None:
        self.driver = driver
        self.url = url

    def opened(self) -> "Browser":
        """Open the page as a new tab would: without a key."""
        self.driver.get(f"{self.url}/")
        self.run("sessionStorage.clear()")
        self.driver.refresh()
        self.until_seen("#key")
        return self

    def signed_in(self, key: str) -> "Browser":
        self.opened()
        self.one("#key").send_keys(key, "\n")
        self.until_seen("#yard")
        return self

    def one(self, selector: str) -> WebElement:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector: str) -> Sequence[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def text(self, selector: str) -> str:
        """What a reader sees there; nothing where nothing is."""
        try:
            return self.one(selector).text
        except (NoSuchElementException, StaleElementReferenceException):
            return ""

    def until_seen(self, selector: str) -> WebElement:
        def seen() -> bool:
            try:
                return self.one(selector).is_displayed()
            except (NoSuchElementException, StaleElementReferenceException):
                return False

        until(seen, f"{selector} is seen", seconds=SECONDS)
        return self.one(selector)

    def until_reads(self, selector: str, *words: str) -> str:
        """Wait until the text there has all the words; gives it."""

        def reads() -> bool:
            return all(word in self.text(selector) for word in words)

        try:
            until(reads, f"{selector} reads {words}", seconds=SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}; it reads {self.text(selector)!r}") from None
        return self.text(selector)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def press(self, *keys: str) -> None:
        """Type into whatever has the focus."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def tell(self, command: str, **parameters: Any) -> Any:
        """Send a command of Chromium's DevTools."""
        return self.driver.execute_cdp_cmd(command, parameters)

    @contextmanager
    def sized(self, width: int, height: int) -> Iterator[None]:
        """Be a phone of that size inside the block."""
        self.tell("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=True)
        yield
        self.tell("Emulation.clearDeviceMetricsOverride")

    @contextmanager
    def colours(self, scheme: str) -> Iterator[None]:
        """Prefer light or dark inside the block."""
        self.tell("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        yield
        self.tell("Emulation.setEmulatedMedia", features=[])

    @contextmanager
    def offline(self) -> Iterator[None]:
        """Be without a network inside the block."""
        self._network(offline=True)
        yield
        self._network()

    @contextmanager
    def unanswered(self) -> Iterator[None]:
        """Have every answer come in ten minutes inside the block; the page's patience is a thirtieth of what it was."""
        self.run("const lasts = AbortSignal.timeout; AbortSignal.timeout = (ms) => lasts.call(AbortSignal, ms / 30);")
        self._network(latency=600_000)
        yield
        self._network()

    def _network(self, *, offline: bool = False, latency: int = 0) -> None:
        self.tell("Network.enable")
        self.tell(
            "Network.emulateNetworkConditions",
            offline=offline,
            latency=latency,
            downloadThroughput=-1,
            uploadThroughput=-1,
        )

    def picture(self, name: str) -> None:
        """Keep a screenshot, when a folder for them is named."""
        if folder := os.environ.get(SCREENSHOTS):
            shot = self.tell("Page.captureScreenshot", format="png")
            Path(folder, f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browsing(url: str, profile: Path, downloads: Path) -> Iterator[Browser]:
    """Run a browser with an empty profile; skips where there is none."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip(NEEDS)
    options = ChromeOptions()
    options.binary_location = chromium
    for option in (*OPTIONS, f"--user-data-dir={profile}"):
        options.add_argument(option)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    started = Chrome(options=options, service=Service(executable_path=driver))
    try:
        yield Browser(started, url)
    finally:
        started.quit()


def saved(folder: Path, name: str) -> bytes:
    """Wait until a download is whole; gives it."""
    file = folder / name
    until(file.exists, f"{name} is saved", seconds=SECONDS)
    return file.read_bytes()
