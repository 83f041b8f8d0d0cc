"""What was asked for: noted in memory after each answer, written to the catalog a batch at a time."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from storage.catalog import Catalog
from storage.errors import StorageError

FLUSH_EVERY = 32
_LONGEST_BACKLOG = 4096
"""Questions kept in memory while the disk takes none; the oldest go first, they count least."""


class HotnessLog:
    """Counts the chunks of each question. Any thread may call; no question ever fails or waits for a disk over it.

    A kill loses at most the batch in hand; a full disk nothing but its place in time: it is kept and tried again.
    `flushed` is called after each batch that is written because it is full: ranks may have changed.
    """

    def __init__(
        self, catalog: Catalog, flush_every: int = FLUSH_EVERY, flushed: Callable[[], None] | None = None
    ) -> None:
        self._catalog = catalog
        self._flush_every = flush_every
        self._flushed = flushed
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._pending: list[tuple[int, ...]] = []
        self._full = False

    def record(self, chunk_ids: Sequence[int]) -> None:
        """Note a question that used these chunks, and write the batch where it is full."""
        self.note(chunk_ids)
        self.flush_when_full()

    def note(self, chunk_ids: Sequence[int]) -> None:
        """Note a question that used these chunks, in memory alone."""
        with self._lock:
            self._pending.append(tuple(chunk_ids))
            del self._pending[:-_LONGEST_BACKLOG]
            self._full = self._full or len(self._pending) % self._flush_every == 0

    def flush_when_full(self) -> None:
        """Write the batch where it is full (after a failure: when as many have come again)."""
        with self._lock:
            full, self._full = self._full, False
        if full and self.flush() is None and self._flushed is not None:
            with suppress(StorageError):  # the ranks stay as they were
                self._flushed()

    @property
    def pending(self) -> int:
        """Questions that are not written yet."""
        return len(self._pending)

    def flush(self) -> str | None:
        """Write what is noted. Returns why that could not be done, in one line, or None; then nothing is lost."""
        with self._writing:
            with self._lock:
                batch, self._pending = self._pending, []
            try:
                self._catalog.record_uses(batch)
            except StorageError as error:
                with self._lock:
                    self._pending = [*batch, *self._pending][-_LONGEST_BACKLOG:]
                return str(error)
        return None

    def job(self, _stop: threading.Event) -> str | None:
        """`flush` as background work (see `appliance.idle`)."""
        return self.flush()

    def close(self) -> None:
        """Write what is noted; before the catalog is closed. Safe to repeat."""
        self.flush()

    def score(self, chunk_ids: Sequence[int]) -> float:
        """The hotness of a block that these chunks use, what is not written yet included. Raises StorageError."""
        wanted = set(chunk_ids)
        with self._lock:
            noted = sum(len(wanted.intersection(used)) for used in self._pending)
        return noted + sum(self._catalog.chunk_scores(list(wanted)).values())
