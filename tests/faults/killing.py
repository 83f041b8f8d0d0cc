"""Runs `appliance` in children that kill themselves (SIGKILL) at a chosen call; a program, see test_ingest_kill.py.

Reads one JSON object a line on standard input: `arguments` of the command, `target` and `calls`. The child dies before
call number `calls` (from 0) of the target: `module:Class.method`, or `system:NAME` for one of `storage.durable`'s
system calls. Answers one JSON line each: the exit status, and what was `counted`. The models' libraries are imported
once, before any fork, and nothing else is started, so that a fork is safe.
"""

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch

import appliance.service  # noqa: F401 - imported before the forks, so that each costs milliseconds
from appliance.cli import main
from models.reader import ChunkReader  # noqa: F401 - the same
from storage.durable import SYSTEM

COUNT_ONLY = -1


def run_child(order: dict[str, Any], counted: int, program: Callable[[], None]) -> None:
    """Patch the target and run the program; never returns."""
    torch.set_num_threads(1)
    calls = 0

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def killing(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            if calls == order["calls"]:
                os.kill(os.getpid(), signal.SIGKILL)
            calls += 1
            return call(*arguments, **named)

        return killing

    patch(order["target"], wrapped)
    sys.argv = ["appliance", *order["arguments"]]
    code = 0
    try:
        program()
    except SystemExit as ended:
        code = int(ended.code or 0)
    os.write(counted, json.dumps(calls).encode())
    sys.stdout.flush()
    os._exit(code)


def patch(target: str, wrapped: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the target by its wrapped self."""
    module, _, name = target.partition(":")
    if module == "system":
        object.__setattr__(SYSTEM, name, wrapped(getattr(SYSTEM, name)))  # a frozen dataclass, shared as a default
        return
    owner = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    setattr(owner, last, wrapped(getattr(owner, last)))


def serve(program: Callable[[], None] = main) -> None:
    for line in sys.stdin:
        order = json.loads(line)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            os.dup2(2, 1)  # standard output carries the answers
            run_child(order, writing, program)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            counted = pipe.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), "counted": counted}), flush=True)


if __name__ == "__main__":
    serve()
