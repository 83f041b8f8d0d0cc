"""Stopping an answer: an event that tells at once who listens, so that nobody has to look at it again and again."""

import threading
from collections.abc import Callable


class Stop(threading.Event):
    """Set it, from any thread, to end an answer. What listens is called by the thread that sets it, once."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[], None]] = []
        self._adding = threading.Lock()

    def set(self) -> None:
        super().set()
        with self._adding:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called when this is set; now where it is."""
        with self._adding:
            if not self.is_set():
                self._listeners.append(listener)
                return
        listener()
