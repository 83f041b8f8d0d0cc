"""Stands in for the formats of the parser process: does what a taken-over parser might try, as the file says."""

import ctypes
import os
import socket
import sys
import time
from pathlib import Path

from appliance.parsing.base import Parse, ParsedDocument, SourceFile
from appliance.parsing.limits import ParserLimits


def parser_for(kind: str) -> Parse:
    return _parse


def _parse(source: SourceFile, limits: ParserLimits) -> ParsedDocument:
    order, _, argument = source.stream.read().decode().partition(" ")
    return ParsedDocument("title", "txt", _obey(order, argument))


def _obey(order: str, argument: str) -> str:
    match order:
        case "hang":
            time.sleep(3600)
        case "spin":
            while True:
                pass
        case "crash":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "raise":
            raise KeyError(argument)
        case "hog":
            return "x" * 8_000_000_000
        case "recurse":
            return _obey(order, argument)
        case "nonsense":
            os.write(3, b"\xff" * 100)
        case "read":
            return _attempt(lambda: Path(argument).read_text())
        case "write":
            return _attempt(lambda: str(Path(argument).write_text("canary")))
        case "run":
            return _attempt(lambda: str(os.spawnv(os.P_WAIT, argument, [argument])))  # noqa: S606
        case "connect":
            address = ("127.0.0.1", int(argument))
            return _attempt(lambda: str(socket.create_connection(address, timeout=2)))
        case "modules":
            return " ".join(sorted(sys.modules))
        case "environment":
            return " ".join(sorted(os.environ))
    return f"obeyed {order} {argument}"


def _attempt(action: "object") -> str:
    try:
        return f"done {action()}"  # type: ignore[operator]
    except OSError as error:
        return f"refused {type(error).__name__}"
