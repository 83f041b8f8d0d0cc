"""`appliance serve` as a person starts it, with the embedded models, in a real browser."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.demo import sample_folder
from tests.embedded import embedded_settings

pytestmark = pytest.mark.browser


@pytest.fixture
def address(chromium: Any, tmp_path: Path) -> Iterator[str]:
    """A server process with an empty data folder; stopped by Ctrl-C, which must end it cleanly."""
    settings = embedded_settings(tmp_path / "home")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", "from appliance.cli import main; main()", "serve", "--port", str(port)]
    server = subprocess.Popen(
        [*command, "--home", str(settings.home)], stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    deadline_s = time.monotonic() + 90
    while time.monotonic() < deadline_s:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert server.poll() is None, server.communicate()[1]
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}"
    server.send_signal(signal.SIGINT)
    assert server.wait(30) == 0


def test_upload_a_file_ask_see_the_answer_stream_and_its_source(address: str, chromium: Any, tmp_path: Path) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    errors: list[str] = []
    foreign: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else foreign.append(r.url))
    page.set_default_timeout(60_000)
    page.goto(address)
    page.get_by_role("tab", name="Documents").click()
    page.locator("#drop input[type=file]").set_input_files(str(sample_folder() / "lease-contract.txt"))
    page.locator(".entries").first.wait_for()
    page.locator(".document .title", has_text="lease contract").wait_for()

    page.get_by_role("tab", name="Chat").click()
    box = page.locator("#question textarea")
    box.fill("What is the rent for the building at Harlow Quay?")
    box.press("Enter")
    lengths: set[int] = set()
    while not page.locator("#facts .timing").is_visible():
        reply = page.locator("#conversation [data-testid=bot]")
        lengths.add(len(reply.first.inner_text()) if reply.count() else 0)
        time.sleep(0.02)
    assert len(lengths) >= 3, "the answer did not stream"
    assert "18,600" in page.locator("#conversation [data-testid=bot]").first.inner_text()
    assert "lease contract" in page.locator(".source .name").first.inner_text()
    assert "tokens reused" in page.locator("#facts .timing").inner_text()
    page.screenshot(path=str(tmp_path / "answer.png"))
    context.close()
    assert errors == []
    assert foreign == []
