"""Steps launched operation by operation, on any device: the slow twin of graph.py."""

from collections.abc import Callable

from models.arena import Arena
from models.stepping.base import Runner


class EagerRunner(Runner):
    """Runs each step as it is written."""

    name = "eager"

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def run(self, step: Callable[[], None], arena: Arena, slots: int, held: object) -> None:
        step()
