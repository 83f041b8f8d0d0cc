"""Runs the page: our own uvicorn, on the loopback interface only, on exactly the port that was asked for."""

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import uvicorn

from appliance.errors import ApplianceError, PortInUse
from appliance.service import Appliance
from ui.app import build_app

_ADDRESS = "127.0.0.1"
_GRACE_S = 2  # an open page keeps a stream open for ever; it gets this long to say goodbye


class _Server(uvicorn.Server):
    """uvicorn that says when it listens, and stops answers under way before it waits for connections."""

    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None], on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready
        self._on_stop = on_stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


def serve(appliance: Appliance, port: int = 7860, on_ready: Callable[[str], None] | None = None) -> None:
    """Serve the page until Ctrl-C (or SIGTERM), then return. `on_ready` gets the address once it can be opened.

    Raises `PortInUse` where the port is taken (no other port is tried), `ApplianceError` where it cannot be used.
    """
    listening = _listen(port)
    try:
        app = build_app(appliance, port)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=_GRACE_S,
        )
        address = f"http://{_ADDRESS}:{port}"
        server = _Server(config, lambda: on_ready(address) if on_ready else None, app.state.switches.stop_all)
        server.run(sockets=[listening])
    except KeyboardInterrupt:  # uvicorn has shut down and passes the signal on
        return
    finally:
        listening.close()


def _listen(port: int) -> socket.socket:
    if not 1 <= port <= 65535:
        raise ApplianceError(f"port {port} does not exist: choose one from 1024 to 65535 with --port")
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port that was ours a moment ago may be used
    try:
        listening.bind((_ADDRESS, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"port {port} is taken: stop what uses it, or choose another with --port") from error
        raise ApplianceError(f"port {port} cannot be used ({error.strerror}): choose another with --port") from error
    return listening


def enter_empty_folder(folder: Path) -> None:
    """Make `folder` (0700) if needed and work from there: files below the working directory can enter Gradio's cache.

    Relative paths mean something else afterwards: resolve them first. Raises `ApplianceError` where it holds anything.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ApplianceError(f"{folder} must be empty: move what it holds elsewhere and start again")
    os.chdir(folder)
