"""A real Chromium on a real server. `page_on(appliance)` opens the page of any appliance; skips where there is none."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from appliance.service import Appliance
from storage.home import Home
from tests.ui.fake_appliance import FakeAppliance
from ui.app import build_app

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-gpu",
]


@dataclass
class OpenPage:
    """One browser page (`page` is Playwright's) and what it did: every request address, error and alert so far."""

    page: Any
    address: str
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)

    def foreign_requests(self) -> list[str]:
        own = (self.address, "data:", "blob:")
        return [address for address in self.requests if not address.startswith(own)]

    def ask(self, question: str) -> None:
        box = self.page.locator("#question textarea")
        box.fill(question)
        box.press("Enter")

    def upload(self, *files: Path) -> None:
        """Add files on the Documents tab and wait until the result of each is told."""
        self.page.get_by_role("tab", name="Documents").click()
        self.page.locator("#drop input[type=file]").set_input_files([str(file) for file in files])
        self.page.locator(".entries").first.wait_for()

    def attach(self, *files: Path) -> None:
        """Attach files in the chat and wait until the line tells about them."""
        with self.page.expect_file_chooser() as chooser:
            self.page.get_by_role("button", name="Attach files").click()
        chooser.value.set_files([str(file) for file in files])
        self.page.locator("#attached .chip, #attached .failure").first.wait_for()


PageOn = Callable[..., OpenPage]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Playwright's handle of the installed browser."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next((path for path in map(shutil.which, _NAMES) if path), None)
    if found is None:
        pytest.skip("no Chromium on this computer: install the package chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def page_on(chromium: Any) -> Iterator[PageOn]:
    """`page_on(appliance, width=1280, height=800, **context)` serves the appliance and opens its page."""
    with ExitStack() as closing:

        def open_page(appliance: Appliance, width: int = 1280, height: int = 800, **context: Any) -> OpenPage:
            address = closing.enter_context(_Serving(appliance)).address
            browser = chromium.new_context(viewport={"width": width, "height": height}, **context)
            closing.callback(browser.close)
            opened = OpenPage(browser.new_page(), address)
            opened.page.set_default_timeout(15_000)
            opened.page.on("request", lambda request: opened.requests.append(request.url))
            opened.page.on("pageerror", lambda error: opened.errors.append(str(error)))
            opened.page.on("console", lambda line: opened.errors.append(line.text) if line.type == "error" else None)
            opened.page.on("dialog", lambda dialog: _note_alert(opened, dialog))
            opened.page.goto(address)
            opened.page.locator("#question textarea").wait_for()
            opened.page.locator("#colophon p").wait_for()
            return opened

        yield open_page


def _note_alert(opened: OpenPage, dialog: Any) -> None:
    opened.alerts.append(dialog.message)
    dialog.dismiss()


class _Serving:
    """The page's server on a thread, on a port that was free a moment ago."""

    def __init__(self, appliance: Appliance) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        config = uvicorn.Config(
            build_app(appliance, self.port), port=self.port, log_level="warning", ws="none", timeout_graceful_shutdown=1
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> "_Serving":
        self._thread.start()
        deadline_s = time.monotonic() + 10
        while not self._server.started and time.monotonic() < deadline_s:
            time.sleep(0.02)
        assert self._server.started
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)


@pytest.fixture
def fake(tmp_path: Path) -> FakeAppliance:
    home = Home(tmp_path / "home")
    home.create()
    return FakeAppliance(home)
