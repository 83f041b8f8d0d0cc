"""What the appliance and its parser process say to each other: JSON, length-prefixed, over one Unix socket.

A request carries the open file itself as a descriptor, so the parser never opens a document by name. Neither side
believes the other: lengths are bounded, and a reply is checked field by field.
"""

import json
import socket
import struct
import time
from typing import Any

from appliance.parsing.base import PageSpan, ParsedDocument

_LENGTH = struct.Struct(">I")
REQUEST_BYTES = 65_536


class ProtocolBroken(Exception):
    """The other side closed the channel or said something that is not part of the protocol."""


def send_message(channel: socket.socket, message: dict[str, Any], descriptor: int | None = None) -> None:
    """Send one message, with an open file if one is given. Raises `OSError`."""
    payload = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    prefix = _LENGTH.pack(len(payload))
    if descriptor is not None:
        socket.send_fds(channel, [prefix], [descriptor])
    else:
        channel.sendall(prefix)
    channel.sendall(payload)


def receive_request(channel: socket.socket) -> tuple[dict[str, Any], int] | None:
    """Wait for a message with an open file. None when the other side has gone."""
    prefix, descriptors, _, _ = socket.recv_fds(channel, _LENGTH.size, 1)
    if not prefix:
        return None
    if len(prefix) < _LENGTH.size or len(descriptors) != 1:
        raise ProtocolBroken("a request without a file")
    (size_bytes,) = _LENGTH.unpack(prefix)
    return _decode(_receive(channel, size_bytes, REQUEST_BYTES, None)), descriptors[0]


def receive_message(channel: socket.socket, limit_bytes: int, deadline: float) -> dict[str, Any]:
    """Wait until `deadline` (of `time.monotonic`) for a message. Raises `TimeoutError`, `ProtocolBroken`, `OSError`."""
    (size_bytes,) = _LENGTH.unpack(_receive(channel, _LENGTH.size, _LENGTH.size, deadline))
    return _decode(_receive(channel, size_bytes, limit_bytes, deadline))


def _receive(channel: socket.socket, size_bytes: int, limit_bytes: int, deadline: float | None) -> bytes:
    if size_bytes > limit_bytes:
        raise ProtocolBroken(f"a message of {size_bytes} bytes, the limit is {limit_bytes}")
    buffer = bytearray()
    while len(buffer) < size_bytes:
        if deadline is not None:
            left_seconds = deadline - time.monotonic()
            if left_seconds <= 0:
                raise TimeoutError
            channel.settimeout(left_seconds)
        step = channel.recv(min(size_bytes - len(buffer), 1 << 20))
        if not step:
            raise ProtocolBroken("the channel was closed")
        buffer += step
    return bytes(buffer)


def _decode(payload: bytes) -> dict[str, Any]:
    try:
        message = json.loads(payload)
    except ValueError as error:  # JSONDecodeError and UnicodeDecodeError
        raise ProtocolBroken("not JSON") from error
    if not isinstance(message, dict):
        raise ProtocolBroken("not an object")
    return message


def document_to_message(document: ParsedDocument) -> dict[str, Any]:
    """The reply that carries a document."""
    pages = [[page.number, page.start, page.end] for page in document.pages]
    fields = {"title": document.title, "kind": document.kind, "text": document.text}
    return {"document": {**fields, "pages": pages, "flags": list(document.flags)}}


def document_from_message(message: dict[str, Any]) -> ParsedDocument:
    """Read a document out of a reply, believing nothing. Raises `ProtocolBroken`."""
    fields = message.get("document")
    if not isinstance(fields, dict):
        raise ProtocolBroken("no document")
    words = [fields.get("title"), fields.get("kind"), fields.get("text"), *_listed(fields.get("flags"))]
    if not all(isinstance(word, str) for word in words):
        raise ProtocolBroken("title, kind, text or flags are not text")
    pages = []
    position = 0
    for span in _listed(fields.get("pages")):
        if not isinstance(span, list) or len(span) != 3 or not all(type(value) is int for value in span):
            raise ProtocolBroken("a page is not three numbers")
        page = PageSpan(*span)
        if not position <= page.start <= page.end <= len(fields["text"]):
            raise ProtocolBroken("pages overlap or leave the text")
        position = page.end
        pages.append(page)
    return ParsedDocument(fields["title"], fields["kind"], fields["text"], tuple(pages), tuple(fields["flags"]))


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ProtocolBroken("a list is missing")
    return value
