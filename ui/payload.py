"""Looks into what the page sends before Gradio does: a file may only be named where Gradio itself put it.

Gradio follows every file reference in an event's data, whatever the component. It fetches a web address, and mounted in
FastAPI (6.31) it copies any file of this computer that the process can read. The page only ever names its own uploads.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_EVENTS = "/gradio_api/queue/join"
_MOST_BYTES = 8 * 1024 * 1024  # the conversation travels with every question


class PayloadCheck:
    """ASGI middleware; refuses an event with 400 where it names a file outside `cache`, with 413 above 8 MiB."""

    def __init__(self, app: ASGIApp, cache: Path) -> None:
        self._app = app
        self._cache = PurePosixPath(cache.absolute())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != _EVENTS:
            await self._app(scope, receive, send)
            return
        body = await _read(receive)
        if body is None:
            await PlainTextResponse("This is too large: clear the conversation.\n", 413)(scope, receive, send)
        elif not names_only_files_in(body, self._cache):
            await PlainTextResponse("This names a file that was not uploaded.\n", 400)(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)


def names_only_files_in(body: bytes, folder: PurePosixPath) -> bool:
    """Whether `body` is JSON whose every `path` is text that names something below `folder` (absolute)."""
    try:
        open_values: list[Any] = [json.loads(body)]
    except (ValueError, RecursionError):
        return False
    while open_values:
        value = open_values.pop()
        if isinstance(value, dict):
            if "path" in value and not _is_in(value["path"], folder):
                return False
            open_values.extend(value.values())
        elif isinstance(value, list):
            open_values.extend(value)
    return True


def _is_in(path: Any, folder: PurePosixPath) -> bool:
    if not isinstance(path, str):
        return False
    named = PurePosixPath(path)
    return folder in named.parents and ".." not in named.parts


async def _read(receive: Receive) -> bytes | None:
    """The whole body, or None where it is too large or the sender went away."""
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        body.extend(message.get("body", b""))
        if len(body) > _MOST_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(body)


def _replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives `body` once and then what comes after it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
