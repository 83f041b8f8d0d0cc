"""The near side of the parser process: opens files, starts the process, ends it when it fails or takes too long."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from appliance.errors import ApplianceError, DocumentRejected
from appliance.parsing.base import ParsedDocument
from appliance.parsing.cleaning import one_line
from appliance.parsing.isolation import Isolation
from appliance.parsing.limits import ParserLimits
from appliance.parsing.opening import OpenDocument, open_document
from appliance.parsing.protocol import ProtocolBroken, document_from_message, receive_message, send_message

_START_SECONDS = 60.0  # a cold disk; a warm start takes a fifth of a second
_HELLO_BYTES = 4096


class DocumentParser:
    """Parses files in a process of its own, one at a time; usable from several threads.

    The process is started with the first file and kept for the next ones. Use as a context manager, or call `close`.
    """

    def __init__(self, limits: ParserLimits | None = None, formats_module: str = "appliance.parsing.formats") -> None:
        self._limits = limits or ParserLimits()
        self._formats_module = formats_module
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def parse(self, path: Path) -> ParsedDocument:
        """Read one file. Raises `DocumentRejected`; `ApplianceError` if the parser process cannot be started."""
        with open_document(path, self._limits) as document:
            return self.parse_open(document)

    def parse_open(self, document: OpenDocument) -> ParsedDocument:
        """Read a file that is open already, whatever its path names by now. Raises as `parse` does."""
        request = {"name": document.name, "kind": document.kind}
        with self._lock:
            message = self._ask(request, document.descriptor, document.name)
        if "rejected" in message:
            raise DocumentRejected(one_line(str(message["rejected"]), limit=1000))
        try:
            return document_from_message(message)
        except ProtocolBroken as error:
            raise _failed(document.name, str(error)) from None

    def isolation(self) -> Isolation:
        """Say which doors are closed to the parser process; starts it if need be."""
        with self._lock:
            return self._running_worker().isolation

    def close(self) -> None:
        """End the process. The parser can be used again, which starts another."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, request: dict[str, Any], descriptor: int, name: str) -> dict[str, Any]:
        worker = self._running_worker()
        reusable = False
        try:
            message = worker.ask(request, descriptor, self._limits)
            reusable = message.get("last") is not True
            return message
        except TimeoutError:
            seconds = f"{self._limits.wall_seconds:g} s"
            raise DocumentRejected(f"{name} took longer than {seconds} to read: split it or save it as text") from None
        except (ProtocolBroken, OSError):
            raise _failed(name, worker.how_it_ended()) from None
        finally:
            # Also after Ctrl-C: a process that still works on the last file would answer the next question with it.
            if not reusable:
                self._stop()

    def _running_worker(self) -> "_Worker":
        if self._worker is not None and not self._worker.is_alive():
            self._stop()
        if self._worker is None:
            self._worker = _Worker(self._formats_module, self._limits)
        return self._worker

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


class _Worker:
    """One parser process and the channel to it."""

    def __init__(self, formats_module: str, limits: ParserLimits) -> None:
        self._channel, far_end = socket.socketpair()
        # -P: the current folder may be the user's, and must not be a place to import from.
        command = [sys.executable, "-P", "-B", "-m", "appliance.parsing.worker", formats_module]
        with far_end:
            self._process = subprocess.Popen(
                [*command, json.dumps(asdict(limits))],
                stdin=far_end.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for us; and one kill reaches whatever it may have started
            )
        try:
            hello = receive_message(self._channel, _HELLO_BYTES, time.monotonic() + _START_SECONDS)
            self.isolation = Isolation(**hello["ready"])
        except (ProtocolBroken, OSError, KeyError, TypeError):
            ended = self.how_it_ended()
            self.stop()
            message = f"the parser process does not start ({ended}): run the set-up of the appliance again"
            raise ApplianceError(message) from None

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], descriptor: int, limits: ParserLimits) -> dict[str, Any]:
        """Send a file and wait for the answer. Raises `TimeoutError`, `ProtocolBroken`, `OSError`."""
        deadline = time.monotonic() + limits.wall_seconds
        self._channel.settimeout(limits.wall_seconds)
        send_message(self._channel, request, descriptor)
        return receive_message(self._channel, limits.reply_bytes, deadline)

    def how_it_ended(self) -> str:
        """Words for a message. A process that closed its channel is given a moment to end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1.0)
        code = self._process.poll()
        if code is None:
            return "it answered nonsense"
        return f"exit {code}" if code >= 0 else signal.Signals(-code).name

    def stop(self) -> None:
        self._channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _failed(name: str, how: str) -> DocumentRejected:
    return DocumentRejected(f"{name} made the parser fail ({how}): save it in another format and ingest it again")


def _environment() -> dict[str, str]:
    """What the process needs to find this package and its libraries; nothing of the user's settings and secrets."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {"PYTHONPATH": os.pathsep.join(path for path in paths if path), "LANG": "C.UTF-8", "PYTHONUTF8": "1"}
