"""A tier in any memory: encoded blocks, the least recently used evicted first."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from storage.blocks import EncodedBlock
from storage.buffers import capacity_bytes
from storage.tiers.base import Lease, Tier, TierState, once
from storage.tiers.memory import Memory

# After a refusal so many takes are answered without asking: a device that is full is slow to say so.
TAKES_TO_SKIP = 32


@dataclass
class _Entry:
    block: EncodedBlock
    leases: int = 0
    retired: bool = False


class MemoryTier(Tier):
    """Holds at most `budget_bytes` and `budget_blocks`; a budget of 0 keeps nothing. Leased blocks are never evicted.

    Evicting frees and copies nothing: what lies below stays there ("swap-out only once", HA-RAG Algorithm 2).
    """

    def __init__(self, name: str, budget_bytes: int, memory: Memory, budget_blocks: int | None = None) -> None:
        self.name = name
        self.budget_bytes = budget_bytes
        self.budget_blocks = budget_blocks
        self._memory = memory
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._used_bytes = 0
        self._moving = 0
        self._hits = 0
        self._refusals = 0
        self._reason = ""
        self._takes_to_skip = 0
        self._lock = threading.Lock()

    def lease(self, key: str) -> Lease | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._hits += 1
            return self._leased(key, entry)

    def take(self, size_bytes: int) -> np.ndarray | None:
        with self._lock:
            if capacity_bytes(size_bytes) > self.budget_bytes or self.budget_blocks == 0:
                return None
            if self._takes_to_skip:
                self._takes_to_skip -= 1
                return None
        try:
            return self._memory.take(size_bytes)
        except (MemoryError, RuntimeError) as refusal:
            self._refused(refusal)
            return None

    def give(self, buffer: np.ndarray) -> None:
        self._memory.give(buffer)

    def offer(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        key, size = block.header.key, block.size_bytes
        with self._lock:
            entry = self._current(block)
            if entry is not None:
                return self._instead(key, entry, block)
            if not self._make_room(size, evict):
                return None
            self._reserve(size, 1)  # held for this block while it moves, which is done without the lock
        settled = None
        try:
            settled = self._memory.settle(block)
        except (MemoryError, RuntimeError) as refusal:
            self._refused(refusal)
            return None
        finally:
            if settled is None:
                with self._lock:
                    self._reserve(-size, -1)
        with self._lock:
            self._reserve(-size, -1)
            entry = self._current(block)
            if entry is not None:  # another thread was faster
                return self._instead(key, entry, block)
            if settled is not block:
                self._free(block)
            self._used_bytes += settled.size_bytes
            entry = self._entries[key] = _Entry(settled)
            return self._leased(key, entry)

    def admit(self, block: EncodedBlock, evict: bool = True) -> Lease | None:
        buffer = self.take(block.data.nbytes)
        if buffer is None:
            return None
        buffer[:] = block.data
        kept = self.offer(EncodedBlock(block.header, buffer, buffer), evict)
        if kept is None:
            self.give(buffer)
        return kept

    def retire(self, key: str) -> None:
        with self._lock:
            self._retire(key)

    def holds(self, key: str) -> bool:
        return key in self._entries

    def resize(self, budget_bytes: int) -> None:
        with self._lock:
            self.budget_bytes = budget_bytes
            self._evict_what_is_over()

    def limit_blocks(self, blocks: int | None) -> None:
        with self._lock:
            self.budget_blocks = blocks
            self._evict_what_is_over()

    def shed(self) -> int:
        with self._lock:
            before = self._used_bytes
            for key in self._unused():
                self._retire(key)
            return before - self._used_bytes

    def state(self) -> TierState:
        with self._lock:
            return TierState(
                kind=self._memory.kind,
                budget_bytes=self.budget_bytes,
                budget_blocks=self.budget_blocks,
                used_bytes=self._used_bytes,
                blocks=len(self._entries),
                hits=self._hits,
                refusals=self._refusals,
                reason=self._reason,
            )

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def blocks(self) -> int:
        return len(self._entries)

    def _leased(self, key: str, entry: _Entry) -> Lease:
        entry.leases += 1
        self._entries.move_to_end(key)
        return Lease(entry.block, self.name, once(lambda: self._release(entry)))

    def _current(self, offered: EncodedBlock) -> _Entry | None:
        """The entry of the offered block, or of a newer encoding of it; an older one is retired.

        Of two encodings of one generation the one that is offered was read for a row that is in use now.
        """
        entry = self._entries.get(offered.header.key)
        if entry is None:
            return None
        here = entry.block.header
        if here.file_name == offered.header.file_name or here.generation > offered.header.generation:
            return entry
        self._retire(here.key)
        return None

    def _instead(self, key: str, entry: _Entry, offered: EncodedBlock) -> Lease:
        """The lease of the block that was here first."""
        if offered.buffer is not entry.block.buffer:
            self._free(offered)
        return self._leased(key, entry)

    def _release(self, entry: _Entry) -> None:
        with self._lock:
            entry.leases -= 1
            if entry.leases == 0 and not entry.retired and self._is_over():
                self._retire(entry.block.header.key)
            else:
                self._free_if_unused(entry)

    def _retire(self, key: str) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            entry.retired = True
            self._free_if_unused(entry)

    def _free_if_unused(self, entry: _Entry) -> None:
        if entry.retired and entry.leases == 0:
            self._used_bytes -= entry.block.size_bytes
            self._free(entry.block)

    def _free(self, block: EncodedBlock) -> None:
        if block.buffer is not None:
            self._memory.give(block.buffer)

    def _unused(self) -> list[str]:
        """Keys that may be evicted, the least recently used first."""
        return [key for key, entry in self._entries.items() if entry.leases == 0]

    def _reserve(self, size_bytes: int, blocks: int) -> None:
        self._used_bytes += size_bytes
        self._moving += blocks

    def _blocks_over(self, more: int = 0) -> int:
        """How many blocks are over the limit (below 0: how many more may come), with so many more of them."""
        limit = self.budget_blocks
        return 0 if limit is None else len(self._entries) + self._moving + more - limit

    def _is_over(self) -> bool:
        return self._used_bytes > self.budget_bytes or self._blocks_over() > 0

    def _evict_what_is_over(self) -> None:
        """As far as it is not leased: those go when they are released."""
        for key in self._unused():
            if not self._is_over():
                break
            self._retire(key)

    def _make_room(self, size_bytes: int, evict: bool) -> bool:
        """Evict until one more block of so many bytes fits; changes nothing and says False where that cannot be."""
        room = self.budget_bytes - self._used_bytes
        over = self._blocks_over(more=1)
        victims: list[str] = []
        for key, entry in self._entries.items() if evict else ():
            if room >= size_bytes and over <= 0:
                break
            if entry.leases == 0:
                victims.append(key)
                room += entry.block.size_bytes
                over -= 1
        if room < size_bytes or over > 0:
            return False
        for key in victims:
            self._retire(key)
        return True

    def _refused(self, refusal: Exception) -> None:
        with self._lock:
            self._refusals += 1
            self._reason = str(refusal).partition("\n")[0] or type(refusal).__name__
            self._takes_to_skip = TAKES_TO_SKIP
