"""The parser process: `python -m appliance.parsing.worker FORMATS LIMITS`, spoken to by `process.py` alone.

Its standard input is a socket. It gives up its rights, says that it is ready, and then answers one file after another
until the other side closes. What it does not expect ends it: the other side sees that, rejects the file and starts
another process.
"""

import importlib
import json
import os
import signal
import socket
import sys
from dataclasses import asdict
from typing import Any

from appliance.errors import DocumentRejected
from appliance.parsing.base import SourceFile
from appliance.parsing.isolation import isolate, limit_cpu
from appliance.parsing.limits import ParserLimits, megabytes
from appliance.parsing.protocol import document_to_message, receive_request, send_message

_GRACE_SECONDS = 5  # after the wall limit, in case the appliance was killed and nobody ends this process


def main(arguments: list[str]) -> int:
    """Serve until the channel closes. `arguments` are the module with the formats and the limits as JSON."""
    formats_module, limits_json = arguments
    limits = ParserLimits(**json.loads(limits_json))
    formats = importlib.import_module(formats_module)
    channel = socket.socket(fileno=os.dup(sys.stdin.fileno()))
    send_message(channel, {"ready": asdict(isolate(limits))})
    while (received := receive_request(channel)) is not None:
        request, descriptor = received
        # Both end the process by the kernel's hand: a loop in C cannot be interrupted from Python.
        limit_cpu(limits.wall_seconds)
        signal.alarm(int(limits.wall_seconds) + _GRACE_SECONDS)
        send_message(channel, _answer(formats, request, descriptor, limits))
        signal.alarm(0)
    return 0


def _answer(formats: Any, request: dict[str, Any], descriptor: int, limits: ParserLimits) -> dict[str, Any]:
    """Parse one file. `last` in the answer says that this process should not be used again."""
    name = str(request["name"])
    try:
        with os.fdopen(descriptor, "rb") as stream:
            stream.seek(0)
            source = SourceFile(name, stream, os.fstat(descriptor).st_size)
            return document_to_message(formats.parser_for(str(request["kind"]))(source, limits))
    except DocumentRejected as error:
        return {"rejected": str(error)}
    except MemoryError:
        limit = megabytes(limits.memory_bytes)
        return {"rejected": f"{name} needs more than {limit} of memory to read: split it", "last": True}
    except RecursionError:
        return {"rejected": f"{name} is nested too deeply: save it as plain text and ingest it again"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
