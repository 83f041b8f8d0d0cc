"""How much KV may take on disk, and who keeps it: past the limit the hottest (DESIGN.md §3). Loads no torch.

A document whose KV went stays searchable, and its chunks are computed on demand. Nothing is computed and retired in
turns: a block only ever makes room for a strictly hotter one, and one without room is not computed ahead.
"""

import math
import shutil
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from storage.catalog import Catalog, RankedBlock
from storage.home import Home

if TYPE_CHECKING:
    from storage.store import BlockStore

RETIRED_COUNTER = "blocks_retired_for_room"
_SHARE = 2
_RETIRED_A_TURN = 32
# A limit that follows what is free moves all the time: only what is further past it goes, lest blocks come and go.
_TOLERANCE = 64
# What others publish without asking is seen after so many questions for room, and always before anything goes.
_MEASURED_EVERY = 256
_NONE_GRANTED = (True, math.inf)


def disk_limit(home: Home, used_bytes: int, chosen_bytes: int | None = None) -> int:
    """The limit that was chosen, else half of what is free and what our blocks take now. `home` must be there."""
    if chosen_bytes is not None:
        return chosen_bytes
    return (shutil.disk_usage(home.root).free + used_bytes) // _SHARE


class DiskBudget:
    """Keeps the block files within a limit. `limit_bytes` None: `disk_limit`'s, asked for anew each time.

    Blocks of another model than `fingerprint` (once that is known) are colder than any of its own. `turn` is
    background work's turn; `room_for` is called by who has one already (or answers), so that no question in hand
    loses a block.
    """

    def __init__(
        self,
        home: Home,
        catalog: Catalog,
        store: "BlockStore",
        limit_bytes: int | None = None,
        turn: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.fingerprint: str | None = None
        self._home = home
        self._catalog = catalog
        self._store = store
        self._chosen_bytes = limit_bytes
        self._turn = turn
        self._lock = threading.Lock()
        self._used_bytes = 0
        self._asked = 0
        self._coldest_granted = _NONE_GRANTED
        self._ranked_at: int | None = None
        self._coldest_first: list[RankedBlock] = []

    @property
    def limit_bytes(self) -> int:
        """What block files may take in all."""
        return disk_limit(self._home, self._used_bytes, self._chosen_bytes)

    def room_for(self, size_bytes: int, score: float) -> bool:
        """Whether a block of this size and hotness goes in; retires strictly colder ones where that makes the room.

        Nothing is retired for a False. Raises StorageError.
        """
        with self._lock:
            if self._asked % _MEASURED_EVERY == 0 or self._missing(size_bytes) > 0:
                self._measure()
            self._asked += 1
            missing = self._missing(size_bytes)
            if missing > 0 and (size_bytes > self.limit_bytes or not self._make_room(missing, score)):
                return False
            self._used_bytes += size_bytes
            self._coldest_granted = min(self._coldest_granted, (True, score))
            return True

    def enforce(self, stop: threading.Event | None = None) -> int:
        """Retire the coldest until the limit holds, a few a turn; returns how many. Raises StorageError."""
        with self._lock:
            self._measure()
            tolerated = self.limit_bytes // _TOLERANCE if self._chosen_bytes is None else 0
            if self._missing() <= tolerated:
                return 0
            self._rank()
        retired = 0
        while stop is None or not stop.is_set():
            with self._turn(), self._lock:
                self._measure()
                victims = self._coldest_first[: self._needed(self._missing(), _RETIRED_A_TURN)]
                if not victims:
                    break
                retired += self._retire(victims)
        return retired

    def job(self, stop: threading.Event) -> str | None:
        """`enforce` as background work (see `appliance.idle`)."""
        self.enforce(stop)
        return None

    def _missing(self, size_bytes: int = 0) -> int:
        return self._used_bytes + size_bytes - self.limit_bytes

    def _measure(self) -> None:
        self._used_bytes = self._catalog.block_totals().bytes

    def _rank(self) -> None:
        self._ranked_at = self._catalog.questions()
        self._coldest_granted = _NONE_GRANTED
        ranked = self._catalog.ranked_blocks()
        ranked.reverse()
        ranked.sort(key=self._heat)  # stable
        self._coldest_first = ranked

    def _heat(self, block: RankedBlock) -> tuple[bool, float]:
        return self.fingerprint in (None, block.fingerprint), block.score

    def _make_room(self, missing_bytes: int, score: float) -> bool:
        """Ranking costs half a second at 100,000 blocks: done again only where it could change who goes."""
        if self._ranked_at != self._catalog.questions():
            self._rank()
        for _ in range(2):
            victims = self._coldest_first[: self._needed(missing_bytes, len(self._coldest_first))]
            rows = self._catalog.blocks([block.key for block in victims])
            freed = sum(row.size_bytes for row in rows.values())
            fits = bool(victims) and freed >= missing_bytes and self._heat(victims[-1]) < (True, score)
            colder_came = self._coldest_granted < (self._heat(victims[-1]) if fits else (True, score))
            if len(rows) == len(victims) and not colder_came:
                if fits:
                    self._retire(victims)
                return fits
            self._rank()
        return False

    def _needed(self, missing_bytes: int, most: int) -> int:
        """How many of the coldest, at most, have so many bytes."""
        count = 0
        while missing_bytes > 0 and count < min(most, len(self._coldest_first)):
            missing_bytes -= self._coldest_first[count].size_bytes
            count += 1
        return count

    def _retire(self, victims: Sequence[RankedBlock]) -> int:
        rows = list(self._catalog.blocks([block.key for block in victims]).values())
        self._store.retire(rows)
        del self._coldest_first[: len(victims)]
        self._used_bytes -= sum(row.size_bytes for row in rows)
        self._catalog.count(RETIRED_COUNTER, len(rows))
        return len(rows)
