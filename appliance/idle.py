"""Background work: KV that waits is computed while nobody asks."""

import threading
from collections.abc import Callable

from appliance.errors import ApplianceError
from appliance.ingest import KvIngest
from models.errors import ModelError
from storage.errors import StorageError

# `off` is not here: what the user does not want stored is never computed ahead.
IDLE_POLICIES = ("now", "idle")


class IdleWork:
    """One thread that does what the catalog lacks, a chunk a turn, and sleeps until woken.

    `failure` is what the last round could not do, in one line; the thread lives on.
    """

    def __init__(self, open_work: Callable[[], KvIngest]) -> None:
        self._open_work = open_work
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
            try:
                work = self._open_work()
                done = work.run(work.pending(IDLE_POLICIES), lambda _: None, self._stop)
            except (ApplianceError, ModelError, StorageError) as error:
                self.failure = str(error)  # what waits shows in status; the next ingest wakes this thread again
            else:
                self.failure = done.failed[0] if done.failed else None
