"""The leases that are out: counted, so that a leak shows, and good for a limited time."""

import itertools
import threading
from collections.abc import Callable

from storage.tiers.base import Lease, once


class Leases:
    """Issues leases that expire after `age_s` of the given monotonic clock. Thread-safe.

    An expired lease is counted once and refuses new use. Its memory is freed only when it is released: whoever holds
    it may still be reading.
    """

    def __init__(self, age_s: float, clock: Callable[[], float]) -> None:
        self._age_s = age_s
        self._clock = clock
        self._numbers = itertools.count()
        self._ends: dict[int, float] = {}
        self._expired_before = 0
        self._lock = threading.Lock()

    def begin(self) -> int:
        """Count a lease and let it age from here on, before its block is there. Then `issue` or `cancel` it."""
        ends = self._clock() + self._age_s
        with self._lock:
            number = next(self._numbers)
            self._ends[number] = ends
        return number

    def issue(self, lease: Lease, number: int | None = None) -> Lease:
        """A lease of the same block, counted and with an end; releasing it releases `lease`.

        `number` is of `begin`; None: it begins here.
        """
        number = self.begin() if number is None else number
        ends = self._ends[number]

        def release() -> None:
            self.cancel(number)
            lease.release()

        return Lease(lease.block, lease.tier, once(release), lambda: self._clock() < ends)

    @property
    def out(self) -> int:
        """Leases that are not released yet."""
        return len(self._ends)

    @property
    def expired(self) -> int:
        """Leases that were held for too long, ever."""
        now = self._clock()
        with self._lock:
            return self._expired_before + sum(ends <= now for ends in self._ends.values())

    def cancel(self, number: int) -> None:
        """What began came to nothing, or is over."""
        now = self._clock()
        with self._lock:
            self._expired_before += self._ends.pop(number) <= now
