"""Tiers of every kind, all in plain RAM here, and blocks in their memory."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import torch

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.tiers import DeviceMemory, HostMemory, LockedBuffers, Memory, MemoryTier, Tier
from tests.storage.blocks.builders import make_block

SIZE = make_block().data.nbytes
KEYS = [letter * 64 for letter in "abcdefgh"]


class FakeLocks(LockedBuffers):
    """Page-locked memory whose locks are only counted."""

    locked: set[int] = set()  # noqa: RUF012 the static `unlock` needs it; addresses of two instances never meet

    def lock(self, raw: np.ndarray) -> None:
        self.locked.add(raw.ctypes.data)

    @staticmethod
    def unlock(address: int) -> None:
        FakeLocks.locked.discard(address)


# A factory makes a memory over buffers of the test's own.
MEMORIES: dict[str, Callable[[AlignedBuffers], Memory]] = {
    "pageable": HostMemory,
    "pinned": lambda _: HostMemory(FakeLocks(), "page-locked"),
    "gpu": lambda buffers: DeviceMemory(torch.device("cpu"), buffers),
    "gpu without one": HostMemory,
}


def make_tier(name: str, budget_bytes: int, budget_blocks: int | None = None) -> MemoryTier:
    """An empty tier of a kind of `MEMORIES`."""
    return MemoryTier(name.partition(" ")[0], budget_bytes, MEMORIES[name](AlignedBuffers()), budget_blocks)


def block_in(tier: Tier, key: str, **changes: int) -> EncodedBlock:
    """A block in memory that the tier handed out; each key has other bytes."""
    block = make_block(key, seed=KEYS.index(key), **changes)  # type: ignore[arg-type]
    buffer = tier.take(block.data.nbytes)
    assert buffer is not None
    buffer[:] = block.data
    return replace(block, data=buffer, buffer=buffer)


def keep(tier: Tier, *keys: str) -> None:
    """Offer blocks and give their leases back at once."""
    for key in keys:
        lease = tier.offer(block_in(tier, key))
        assert lease is not None
        lease.release()


def here(tier: Tier) -> set[str]:
    """Keys that a lookup finds."""
    return set(found(tier))


def found(tier: Tier) -> Iterator[str]:
    for key in KEYS:
        lease = tier.lease(key)
        if lease is not None:
            assert lease.block.header.key == key
            lease.release()
            yield key


def bytes_of(block: EncodedBlock) -> bytes:
    """What the block holds, wherever it lies."""
    assert (block.device_data is None) == (block.data.nbytes > 0), "held twice, or not at all"
    return block.data.tobytes() if block.device_data is None else block.device_data.numpy().tobytes()


def is_block(block: EncodedBlock, key: str) -> bool:
    """Whether it is the block of `block_in`, bytes and all."""
    expected = make_block(key, seed=KEYS.index(key))
    return block.header == expected.header and bytes_of(block) == expected.data.tobytes()
