"""Whose turn it is at the model: one user at a time, questions before background work (DESIGN.md §4).

All questions that are answered at once share one turn: the scheduler takes it with the first of them and gives it back
after the last (appliance/scheduler).
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Background work takes the model a chunk at a time and lets every waiting question go first."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._busy = False
        self._answering = False
        self._questions: deque[object] = deque()  # who waits, in the order they came

    def take(self) -> None:
        """Take the model for questions, after those that came before; `give` it back from any thread."""
        ticket = object()
        with self._condition:
            self._questions.append(ticket)
            try:
                self._condition.wait_for(lambda: not self._busy and self._questions[0] is ticket)
                self._busy = self._answering = True
            finally:
                self._questions.remove(ticket)
                self._condition.notify_all()

    def give(self) -> None:
        """Give back what `take` took."""
        self._end()

    @property
    def wanted(self) -> bool:
        """Whether somebody waits in `take` or `question`: who holds the turn for long should let them by."""
        return bool(self._questions)

    @contextmanager
    def question(self) -> Iterator[None]:
        """Hold the model for a question."""
        self.take()
        try:
            yield
        finally:
            self.give()

    @contextmanager
    def background(self) -> Iterator[None]:
        """Hold the model for one small piece of work, after every waiting question."""
        with self._condition:
            self._condition.wait_for(lambda: not self._busy and not self._questions)
            self._busy = True
        try:
            yield
        finally:
            self._end()

    def let_questions_by(self) -> None:
        """Wait while a question waits or is being answered; called between the pieces of a background write."""
        with self._condition:
            self._condition.wait_for(lambda: not self._questions and not self._answering)

    def _end(self) -> None:
        with self._condition:
            self._busy = self._answering = False
            self._condition.notify_all()
