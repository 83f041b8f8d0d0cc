"""Background work: jobs that wait until nobody asks (DESIGN.md §4). Each sees to its own turns: questions go first."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from appliance.errors import ApplianceError
from models.errors import ModelError
from storage.errors import StorageError

if TYPE_CHECKING:
    from appliance.ingest import KvIngest

# `off` is not here: what the user does not want stored is never computed ahead.
IDLE_POLICIES = ("now", "idle")
FAILURES_COUNTER = "idle_failures"
QUIET_S = 5.0
"""How long nobody must have asked before `soon` is now."""

IdleJob = Callable[[threading.Event], str | None]
"""Does what waits, a small piece a turn, until the event is set; returns why it could not go on, in one line, or None.

What is to do is derived from the catalog, so a job that was stopped or killed goes on where it was. It opens what it
needs itself, at each round.
"""

# Lines of our own, fit to be shown as they are.
_TOLD = (ApplianceError, ModelError, StorageError)
# The system's: no descriptor left (OSError), no memory, and torch's errors, of which a full GPU is a RuntimeError.
_FOREIGN = (OSError, RuntimeError, MemoryError)
_LONGEST_REASON = 300


class IdleWork:
    """One thread that carries out the jobs in order, sleeps until woken, and begins again at the first.

    `failure` is what the last round could not do, in one line; a job that fails costs that job alone, the thread lives
    on, and every round with a failure is counted.
    """

    def __init__(self, jobs: Sequence[IdleJob], count: Callable[[str], None], quiet_s: float = QUIET_S) -> None:
        self._jobs = tuple(jobs)
        self._count = count
        self._quiet_s = quiet_s
        self._stop = threading.Event()
        self._changed = threading.Condition()
        self._due_s = -math.inf  # on the monotonic clock
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="idle-kv", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for work now."""
        with self._changed:
            self._due_s = -math.inf
            self._changed.notify()

    def soon(self) -> None:
        """Look for work once nobody has called this (after a question) for a while."""
        with self._changed:
            now = time.monotonic()
            if self._due_s > now:
                self._due_s = now + self._quiet_s
                self._changed.notify()

    def close(self) -> None:
        """Stop after the piece in hand."""
        self._stop.set()
        self.wake()
        self._thread.join()

    def _run(self) -> None:
        while self._awaited():
            # What waits shows in status; the next ingest wakes this thread again.
            self.failure = self._round()
            if self.failure is not None:
                with suppress(StorageError):  # a full disk may be the very failure
                    self._count(FAILURES_COUNTER)

    def _awaited(self) -> bool:
        """Wait for the next round; False where there is none."""
        with self._changed:
            while not self._stop.is_set():
                left_s = self._due_s - time.monotonic()
                if left_s <= 0:
                    self._due_s = math.inf
                    return True
                self._changed.wait(None if math.isinf(left_s) else left_s)
        return False

    def _round(self) -> str | None:
        """Each job once; returns the first that could not be done, in one line."""
        failures = [self._carried_out(job) for job in self._jobs if not self._stop.is_set()]
        return next((failure for failure in failures if failure is not None), None)

    def _carried_out(self, job: IdleJob) -> str | None:
        try:
            return job(self._stop)
        except _TOLD as error:
            return str(error)
        except _FOREIGN as error:
            reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
            return f"background work stopped ({reason}): free memory or files, the next ingest tries again"


def missing_kv(open_work: Callable[[], "KvIngest"]) -> IdleJob:
    """The job that computes the KV that waits (`--kv idle`, and what a kill left)."""

    def job(stop: threading.Event) -> str | None:
        work = open_work()
        return work.run(work.pending(IDLE_POLICIES), lambda _: None, stop).error

    return job
