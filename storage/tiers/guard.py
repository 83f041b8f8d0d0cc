"""Asking a tier so that one that raises, although it should not, costs itself only."""

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from storage.tiers.base import Tier

# A lost device, a defect.
FAILURES = (RuntimeError, MemoryError, OSError)
Answer = TypeVar("Answer")
Other = TypeVar("Other")


class Guard:
    """Counts how often each tier raised. Thread-safe."""

    def __init__(self, tiers: Iterable[Tier]) -> None:
        self.failures = dict.fromkeys([tier.name for tier in tiers], 0)
        self._counting = threading.Lock()

    def asked(self, tier: Tier, call: Callable[[], Answer], otherwise: Other) -> Answer | Other:
        """What `call`, about this tier, returns; `otherwise`, and counted, where it raises one of FAILURES."""
        try:
            return call()
        except FAILURES:
            with self._counting:
                self.failures[tier.name] += 1
            return otherwise
