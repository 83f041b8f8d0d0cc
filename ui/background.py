"""Runs blocking work on one thread of its own and hands its events to the page."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

Event = TypeVar("Event")
_DRAIN_S = 0.04  # what arrives within this time is shown together: 25 pictures a second are enough


@dataclass(frozen=True)
class _Ended:
    failure: BaseException | None


def in_background(work: Callable[[Callable[[Event], None]], None], tick_s: float = 1.0) -> Iterator[list[Event]]:
    """Run `work(emit)` and yield what it emits in batches; an empty batch every `tick_s` seconds means "still busy".

    Gradio advances a generator on a different thread each time, while inference mode and database connections belong to
    one thread: hence the thread. What `work` raises is raised here. If the reader goes away, the work goes on unread.
    """
    events: queue.SimpleQueue[Event | _Ended] = queue.SimpleQueue()

    def run() -> None:
        failure: BaseException | None = None
        try:
            work(events.put)
        except BaseException as raised:  # noqa: BLE001  # carried to the reader's thread, which raises it again
            failure = raised
        events.put(_Ended(failure))

    threading.Thread(target=run, name="page-work", daemon=True).start()
    while True:
        batch: list[Event] = []
        end = _collect(events, batch, tick_s)
        if batch or end is None:
            yield batch
        if end is not None:
            if end.failure is not None:
                raise end.failure
            return


def _collect(events: "queue.SimpleQueue[Event | _Ended]", batch: list[Event], tick_s: float) -> _Ended | None:
    """Wait for one event at most `tick_s`, then take what follows within `_DRAIN_S`. Returns the end, if it came."""
    wait_s, deadline_s = tick_s, None
    while wait_s > 0:
        try:
            event = events.get(timeout=wait_s)
        except queue.Empty:
            return None
        if isinstance(event, _Ended):
            return event
        batch.append(event)
        now_s = time.monotonic()
        deadline_s = now_s + _DRAIN_S if deadline_s is None else deadline_s
        wait_s = deadline_s - now_s
    return None
