"""Background work: KV that waits is computed while nobody asks."""

import threading
from collections.abc import Callable
from contextlib import suppress

from appliance.errors import ApplianceError
from appliance.ingest import KvIngest, KvWork
from models.errors import ModelError
from storage.errors import StorageError

# `off` is not here: what the user does not want stored is never computed ahead.
IDLE_POLICIES = ("now", "idle")
FAILURES_COUNTER = "idle_failures"
# Lines of our own, fit to be shown as they are.
_TOLD = (ApplianceError, ModelError, StorageError)
# The system's: no descriptor left (OSError), no memory, and torch's errors, of which a full GPU is a RuntimeError.
_FOREIGN = (OSError, RuntimeError, MemoryError)
_LONGEST_REASON = 300


class IdleWork:
    """One thread that does what the catalog lacks, a chunk a turn, and sleeps until woken.

    `failure` is what the last round could not do, in one line; the thread lives on, and every such round is counted.
    """

    def __init__(self, open_work: Callable[[], KvIngest], count: Callable[[str], None]) -> None:
        self._open_work = open_work
        self._count = count
        self._stop = threading.Event()
        self._wake = threading.Event()
        self._wake.set()
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="idle-kv", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Look for work again."""
        self._wake.set()

    def close(self) -> None:
        """Stop after the chunk in hand."""
        self._stop.set()
        self._wake.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._stop.is_set():
                return
            # What waits shows in status; the next ingest wakes this thread again.
            self.failure = self._round()
            if self.failure is not None:
                with suppress(StorageError):  # a full disk may be the very failure
                    self._count(FAILURES_COUNTER)

    def _round(self) -> str | None:
        """Do what waits; returns why it could not be done, in one line."""
        try:
            return self._work().error
        except _TOLD as error:
            return str(error)
        except _FOREIGN as error:
            reason = " ".join(str(error).split())[:_LONGEST_REASON] or type(error).__name__
            return f"background work stopped ({reason}): free memory or files, the next ingest tries again"

    def _work(self) -> KvWork:
        work = self._open_work()
        return work.run(work.pending(IDLE_POLICIES), lambda _: None, self._stop)
