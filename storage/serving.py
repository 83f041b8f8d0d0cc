"""Serving blocks: from the fastest tier that has them, else from their files, with a lease that is counted."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from storage.blocks import BlockExpectation, EncodedBlock, read_block_file
from storage.blocks.reader import OnLayers
from storage.buffers import AlignedBuffers
from storage.placement import RecentPlacement
from storage.tiers import DISK, Lease, Leases, MemoryTier, TierStack, find_memory

# They wait for the disk, not for the processor: enough to keep a fast one busy.
READER_THREADS = 4


class Serving:
    """The tiers of one store and the threads that read for them. Thread-safe. Budgets in bytes, by tier, in order."""

    def __init__(
        self,
        budgets_bytes: Mapping[str, int],
        device: str,
        direct: bool,
        lease_age_s: float,
        clock: Callable[[], float],
    ) -> None:
        self._buffers = AlignedBuffers()
        tiers = [
            MemoryTier(name, budget_bytes, find_memory(name, device, self._buffers))
            for name, budget_bytes in budgets_bytes.items()
        ]
        self.stack = TierStack(tiers, RecentPlacement(), self._buffers)
        self.leases = Leases(lease_age_s, clock)
        self._direct = direct
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="block-reader")
        self._counting = threading.Lock()
        self._reads = 0
        self._read_bytes = 0

    def load(self, path: Path, expected: BlockExpectation, on_layers: OnLayers | None = None) -> Lease:
        """As BlockStore.load says. Several threads that ask for the same cold block each read it; one copy is kept."""
        before = self.stack.retirements
        number = self.leases.begin()  # `on_layers` uses the block already
        try:
            found = self.stack.find(expected.key, path.name)
            if found is None:
                found = self._read(path, expected, on_layers)
            elif on_layers is not None:
                _hand_on(found, on_layers)
        except BaseException:
            self.leases.cancel(number)
            raise
        if self.stack.retirements != before:  # perhaps of this block, between looking it up and keeping it
            self.stack.forget(expected.key)
        return self.leases.issue(found, number)

    def check(self, path: Path, expected: BlockExpectation) -> None:
        """Read a file whole, past the tiers. Raises BlockDamaged."""
        block = read_block_file(path, expected, self._buffers, self._direct)
        self._give_back(block)

    def state(self) -> dict[str, dict[str, Any]]:
        """Each tier's state by name, then `disk` and `leases`."""
        disk = {"hits": self._reads, "read_bytes": self._read_bytes}
        return {**self.stack.state(), DISK: disk, "leases": {"out": self.leases.out, "expired": self.leases.expired}}

    def _read(self, path: Path, expected: BlockExpectation, on_layers: OnLayers | None) -> Lease:
        destination = self.stack.destination(expected.key)
        block = read_block_file(path, expected, destination, self._direct, on_layers, self._readers)
        with self._counting:
            self._reads += 1
            self._read_bytes += expected.size_bytes
        return destination.keep(block)

    def _give_back(self, block: EncodedBlock) -> None:
        if block.buffer is not None:
            self._buffers.give(block.buffer)


def _hand_on(found: Lease, on_layers: OnLayers) -> None:
    """All layers at once; where `on_layers` raises, the lease is released."""
    try:
        on_layers(found.block, range(found.block.header.geometry.layers))
    except BaseException:
        found.release()
        raise
