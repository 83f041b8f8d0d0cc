"""`pageable`: encoded blocks in plain memory, the least recently used evicted first."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.tiers.base import Lease, Tier, once


@dataclass
class _Entry:
    block: EncodedBlock
    leases: int = 0
    retired: bool = False


class PageableTier(Tier):
    """Holds at most `budget_bytes`; a budget of 0 keeps nothing. Leased blocks are never evicted."""

    name = "pageable"

    def __init__(self, budget_bytes: int, buffers: AlignedBuffers) -> None:
        self.budget_bytes = budget_bytes
        self._buffers = buffers
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._used_bytes = 0
        self._lock = threading.Lock()

    def lease(self, key: str) -> Lease | None:
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return self._leased(entry)

    def offer(self, block: EncodedBlock) -> Lease | None:
        key = block.header.key
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                if block.buffer is not entry.block.buffer:
                    self._give_back(block)
                return self._leased(entry)
            if not self._make_room(block.size_bytes):
                return None
            entry = self._entries[key] = _Entry(block)
            self._used_bytes += block.size_bytes
            return self._leased(entry)

    def retire(self, key: str) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is not None:
                entry.retired = True
                self._free_if_unused(entry)

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def blocks(self) -> int:
        return len(self._entries)

    def _leased(self, entry: _Entry) -> Lease:
        entry.leases += 1
        return Lease(entry.block, self.name, once(lambda: self._release(entry)))

    def _release(self, entry: _Entry) -> None:
        with self._lock:
            entry.leases -= 1
            self._free_if_unused(entry)

    def _free_if_unused(self, entry: _Entry) -> None:
        if entry.retired and entry.leases == 0:
            self._used_bytes -= entry.block.size_bytes
            self._give_back(entry.block)

    def _make_room(self, size_bytes: int) -> bool:
        """Evict until so many bytes fit; changes nothing and says False where leases leave too little."""
        victims, room = [], self.budget_bytes - self._used_bytes
        for key, entry in self._entries.items():
            if room >= size_bytes:
                break
            if entry.leases == 0:
                victims.append(key)
                room += entry.block.size_bytes
        if room < size_bytes:
            return False
        for key in victims:
            entry = self._entries.pop(key)
            entry.retired = True
            self._free_if_unused(entry)
        return True

    def _give_back(self, block: EncodedBlock) -> None:
        if block.buffer is not None:
            self._buffers.give(block.buffer)
