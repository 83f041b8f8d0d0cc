"""The events of one answer on their way to who reads them."""

import threading
from collections import deque
from collections.abc import Callable, Iterator

from appliance.answers import AnswerEvent, AnswerText


class Channel:
    """Bounded by who writes: the model goes on with an answer only while `has_room`. Nobody waits to write.

    `drained` is called, on the reader's thread, when there is room again.
    """

    def __init__(self, limit: int, drained: Callable[[], None]) -> None:
        self._limit = limit
        self._drained = drained
        self._changed = threading.Condition()
        self._events: deque[AnswerEvent] = deque()
        self._ended = False
        self._error: Exception | None = None

    @property
    def has_room(self) -> bool:
        """Whether another token may be computed."""
        return len(self._events) < self._limit

    def put(self, event: AnswerEvent) -> None:
        """Every token takes a place, also where it completes no text: the reader sees only text."""
        with self._changed:
            self._events.append(event)
            self._changed.notify()

    def end(self, error: Exception | None = None) -> None:
        """Nothing comes any more; the reader raises `error` after what it has not read yet."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify()

    def read(self) -> Iterator[AnswerEvent]:
        """Events as they come, to the end. Raises what the answer ended with."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._events or self._ended)
                if not self._events:
                    break
                was_full = not self.has_room
                event = self._events.popleft()
            if was_full:
                self._drained()
            if not isinstance(event, AnswerText) or event.text:
                yield event
        if self._error is not None:
            raise self._error
