"""The server: loopback only, exactly the port asked for, a clean end."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from appliance.errors import ApplianceError, PortInUse
from tests.ui.fake_appliance import FakeAppliance
from ui.server import enter_empty_folder, serve

_SERVE = """
import sys
from pathlib import Path
from storage.home import Home
from tests.ui.fake_appliance import FakeAppliance
from ui.server import serve
home = Home(Path(sys.argv[1]))
home.create()
serve(FakeAppliance(home).as_appliance(), int(sys.argv[2]), lambda address: print(address, flush=True))
print("ended", flush=True)
"""


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        yield busy.getsockname()[1]


def test_a_taken_port_is_said_and_no_other_is_tried(fake: FakeAppliance, taken: int) -> None:
    with pytest.raises(PortInUse, match=f"^port {taken} is taken: .*--port$"):
        serve(fake.as_appliance(), taken)


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_port_that_does_not_exist(fake: FakeAppliance, port: int) -> None:
    with pytest.raises(ApplianceError, match=f"port {port} does not exist"):
        serve(fake.as_appliance(), port)


def test_serves_on_loopback_and_ends_on_interrupt(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", _SERVE, str(tmp_path / "home"), str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRADIO_")}
    # A proxy that answers nobody must not matter.
    environment["HTTP_PROXY"] = environment["http_proxy"] = "http://127.0.0.1:9"
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert server.stdout is not None
        assert server.stdout.readline().strip() == f"http://127.0.0.1:{port}"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"http://127.0.0.1:{port}/", timeout=10) as page:
            assert page.status == 200
        listening = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        addresses = [fields[1] for fields in listening if fields[1].endswith(f":{port:04X}") and fields[3] == "0A"]
        assert addresses == [f"0100007F:{port:04X}"]
        interrupted_s = time.monotonic()
        server.send_signal(signal.SIGINT)
        assert server.stdout.read().strip() == "ended"
        assert server.wait(10) == 0
        assert time.monotonic() - interrupted_s < 10
    finally:
        server.kill()
        server.wait()


def test_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    enter_empty_folder(tmp_path / "empty")
    assert Path.cwd() == tmp_path / "empty"
    Path("left.txt").write_text("x")
    with pytest.raises(ApplianceError, match="must be empty"):
        enter_empty_folder(tmp_path / "empty")
