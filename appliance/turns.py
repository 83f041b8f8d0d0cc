"""Whose turn it is at the model: one user at a time, questions before background work (DESIGN.md §4)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """Background work takes the model a chunk at a time and lets every waiting question go first."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._busy = False
        self._answering = False
        self._waiting_questions = 0

    @contextmanager
    def question(self) -> Iterator[None]:
        """Hold the model for a question."""
        with self._condition:
            self._waiting_questions += 1
            try:
                self._condition.wait_for(lambda: not self._busy)
                self._busy = self._answering = True
            finally:
                self._waiting_questions -= 1
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def background(self) -> Iterator[None]:
        """Hold the model for one small piece of work, after every waiting question."""
        with self._condition:
            self._condition.wait_for(lambda: not self._busy and not self._waiting_questions)
            self._busy = True
        try:
            yield
        finally:
            self._end()

    def let_questions_by(self) -> None:
        """Wait while a question waits or is being answered; called between the pieces of a background write."""
        with self._condition:
            self._condition.wait_for(lambda: not self._waiting_questions and not self._answering)

    def _end(self) -> None:
        with self._condition:
            self._busy = self._answering = False
            self._condition.notify_all()
