"""The store over tiers and files that fail: the right bytes or BlockDamaged, counted, and nothing leaks."""

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from storage.blocks import EncodedBlock
from storage.buffers import AlignedBuffers
from storage.catalog import BlockRow, Catalog
from storage.errors import BlockDamaged
from storage.geometry import Geometry
from storage.home import Home
from storage.placement import RankedPlacement
from storage.store import DAMAGED_COUNTER, BlockStore, StoreSettings
from storage.tiers import MemoryTier, Tier
from tests.storage.blocks.builders import make_block, packed_bytes, same_block
from tests.storage.catalog.builders import new_document, open_catalog
from tests.storage.tiers.faulty import Forgetful, Full, Lost, LostWhileKeeping, Refusing, Slow, Wrapped

KEY, OTHER = "a" * 64, "b" * 64
LARGE = Geometry(layers=7, kv_heads=4, head_dim=64)
BUDGET_BYTES = 64 << 20
# Addresses of the memory that is out.
BORROWED: set[int] = set()


@pytest.fixture(autouse=True)
def watched_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    system_take, system_give = AlignedBuffers.take, AlignedBuffers.give

    def take(self: AlignedBuffers, size_bytes: int) -> np.ndarray:
        buffer = system_take(self, size_bytes)
        BORROWED.add(buffer.ctypes.data)
        return buffer

    def give(self: AlignedBuffers, buffer: np.ndarray) -> None:
        BORROWED.remove(buffer.ctypes.data)
        system_give(self, buffer)

    BORROWED.clear()
    monkeypatch.setattr(AlignedBuffers, "take", take)
    monkeypatch.setattr(AlignedBuffers, "give", give)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one", "two"]))
        yield catalog


@pytest.fixture
def store(tmp_path: Path, catalog: Catalog) -> BlockStore:
    settings = StoreSettings(pageable_bytes=BUDGET_BYTES, pinned_bytes=BUDGET_BYTES, gpu_bytes=BUDGET_BYTES)
    return BlockStore(Home(tmp_path), catalog, settings)


def large_block(key: str = KEY, seed: int = 0, generation: int = 0) -> EncodedBlock:
    return make_block(key, geometry=LARGE, tokens=1100, seed=seed, generation=generation)


def with_tiers(store: BlockStore, *tiers: Tier) -> BlockStore:
    store._serving.stack.tiers = tiers
    return store


def nothing_leaks(store: BlockStore) -> None:
    assert store.leases_out == 0
    for tier in store.tiers:
        getattr(tier, "inner", tier).shed()
        assert (tier.used_bytes, tier.blocks) == (0, 0)
    assert set() == BORROWED, "memory was taken and not given back"


def serves(store: BlockStore, row: BlockRow, block: EncodedBlock) -> str:
    lease = store.load(row)
    assert same_block(lease.block, block)
    lease.release()
    return lease.tier


def flip(offset: Callable[[BlockRow, int], int]) -> Callable[[Path, BlockRow, int], None]:
    """A fault that turns one bit over, at the offset it computes from the row and the bytes of a layer."""

    def fault(path: Path, row: BlockRow, layer_bytes: int) -> None:
        content = bytearray(path.read_bytes())
        content[offset(row, layer_bytes)] ^= 4
        path.write_bytes(content)

    return fault


def unreadable(path: Path, *_: object) -> None:
    path.unlink()
    os.mkfifo(path)


def another(path: Path, *_: object) -> None:
    path.write_bytes(packed_bytes(large_block(OTHER)))


FILE_FAULTS: dict[str, Callable[[Path, BlockRow, int], None]] = {
    "missing": lambda path, *_: path.unlink(),
    "torn": lambda path, row, _: os.truncate(path, row.size_bytes - 4096),
    "unreadable": unreadable,
    "wrong key": another,
    "flipped header": flip(lambda row, _: 900),
    "flipped first layer": flip(lambda row, _: row.header_bytes + 7),
    "flipped late layer": flip(lambda row, layer_bytes: row.header_bytes + 6 * layer_bytes + 7),
}


@pytest.mark.parametrize("tier", ["gpu", "pinned", "pageable", "disk"])
@pytest.mark.parametrize("fault", FILE_FAULTS)
def test_a_file_that_is_not_whole_is_damage(store: BlockStore, catalog: Catalog, fault: str, tier: str) -> None:
    block = large_block()
    row = store.publish(block, 1, [1])
    store.place_by(RankedPlacement({KEY: tier}))
    FILE_FAULTS[fault](store.path(row), row, block.header.layout.layer_bytes)
    told: list[int] = []
    with pytest.raises(BlockDamaged) as caught:
        store.load(row, lambda _, layers: told.extend(layers))
    assert "\n" not in str(caught.value)
    assert (len(told) > 0) == (fault == "flipped late layer"), "the layers before the damage come, no others"
    nothing_leaks(store)
    assert sum(memory.get("hits", 0) for memory in store.memory().values()) == 0
    store.quarantine(row)
    assert catalog.counters()[DAMAGED_COUNTER] == 1
    assert catalog.block(KEY) is None
    repaired = store.publish(block, 1, [1])
    assert serves(store, repaired, block) == "disk"
    assert serves(store, repaired, block) == tier
    nothing_leaks(store)


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("fault", [Forgetful, Full, Slow, Lost, LostWhileKeeping])
def test_a_failing_tier_costs_time_only(store: BlockStore, fault: type[Wrapped], place: int) -> None:
    tiers = list(store.tiers)
    inner, tiers[place] = tiers[place], fault(tiers[place])
    with_tiers(store, *tiers)
    rows = {key: store.publish(make_block(key, seed=seed), 1, [1 + seed]) for seed, key in enumerate((KEY, OTHER))}
    store.place_by(RankedPlacement(dict.fromkeys(rows, inner.name)))
    assert [store.where(row) for row in rows.values()] == ["disk"] * 2
    for _ in range(3):
        for seed, (key, row) in enumerate(rows.items()):
            serves(store, row, make_block(key, seed=seed))
    assert store.leases_out == 0
    raises = fault in (Lost, LostWhileKeeping)
    assert (store.memory()[inner.name]["failures"] > 0) == raises
    store.retire(list(rows.values()))
    if fault is not LostWhileKeeping:  # what it kept was never leased to anyone
        nothing_leaks(store)


@pytest.mark.parametrize("refused", [["gpu"], ["gpu", "pinned"], ["gpu", "pinned", "pageable"]])
def test_refused_memory_is_not_the_questions_trouble(store: BlockStore, refused: Sequence[str]) -> None:
    tiers = [MemoryTier(t.name, BUDGET_BYTES, Refusing(10**6)) if t.name in refused else t for t in store.tiers]
    with_tiers(store, *tiers)
    block = large_block()
    row = store.publish(block, 1, [1])
    store.place_by(RankedPlacement({KEY: "gpu"}))
    served = ["gpu", "pinned", "pageable", "disk"][len(refused)]
    assert [serves(store, row, block) for _ in range(3)] == ["disk", served, served]
    for name, memory in store.memory().items():
        if name in refused:
            assert memory["refusals"] >= 1
            assert memory["reason"] == "out of memory"
    nothing_leaks(store)


@pytest.mark.parametrize("late", [True, False], ids=["at the read", "at the opening"])
def test_a_file_system_without_direct_reads(store: BlockStore, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    block = large_block()
    row = store.publish(block, 1, [1])
    system_open, system_read, refusals = os.open, os.preadv, list[int]()

    def refuse() -> None:
        refusals.append(1)
        raise OSError(errno.EINVAL, "no O_DIRECT here")

    def opening(name: Path, flags: int, *rest: int) -> int:
        if flags & os.O_DIRECT and not late:
            refuse()
        return system_open(name, flags, *rest)

    def reading(descriptor: int, views: Sequence[memoryview], at: int) -> int:
        if late and at > 1 << 20 and not refusals:
            refuse()
        return system_read(descriptor, views, at)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "preadv", reading)
    told: list[int] = []
    lease = store.load(row, lambda _, layers: told.extend(layers))
    assert same_block(lease.block, block)
    assert told == list(range(LARGE.layers)), "layers came twice or not at all"
    assert len(refusals) == 1
    lease.release()
    nothing_leaks(store)


def test_an_error_of_the_process_is_no_damage(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    block = large_block()
    row = store.publish(block, 1, [1])
    with monkeypatch.context() as patch:

        def failing(*_: object) -> int:
            raise OSError(errno.ENOMEM, "none")

        patch.setattr(os, "preadv", failing)
        with pytest.raises(OSError, match="none"):
            store.load(row)
    nothing_leaks(store)
    assert serves(store, row, block) == "disk"
