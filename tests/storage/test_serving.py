"""Loading through the store's tiers: layers as they arrive, placement, leases, what status shows."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from storage.blocks import EncodedBlock
from storage.buffers import capacity_bytes
from storage.catalog import BlockRow, Catalog
from storage.durable import publish_bytes
from storage.errors import BlockDamaged, StorageError
from storage.geometry import Geometry
from storage.home import Home
from storage.placement import RankedPlacement
from storage.store import BlockStore, StoreSettings
from storage.tiers import LeaseExpired
from tests.storage.blocks.builders import make_block, same_block
from tests.storage.catalog.builders import new_document, open_catalog
from tests.storage.faulty import Faults

KEYS = [letter * 64 for letter in "abcd"]
LARGE = Geometry(layers=7, kv_heads=4, head_dim=64)
ENOUGH_BYTES = 64 << 20


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one", "two", "three"]))
        yield catalog


@pytest.fixture
def store(tmp_path: Path, catalog: Catalog) -> BlockStore:
    settings = StoreSettings(pageable_bytes=ENOUGH_BYTES, pinned_bytes=ENOUGH_BYTES, gpu_bytes=ENOUGH_BYTES)
    return BlockStore(Home(tmp_path), catalog, settings)


def published(store: BlockStore, key: str = KEYS[0], *, large: bool = False) -> tuple[EncodedBlock, BlockRow]:
    block = make_block(key, geometry=LARGE, tokens=1200) if large else make_block(key)
    return block, store.publish(block, 1, [1])


class Layers:
    """Records the runs of layers, and that each was whole when it was handed on."""

    def __init__(self, expected: EncodedBlock) -> None:
        self.expected = expected
        self.runs: list[range] = []
        self.thread: set[int] = set()

    def __call__(self, block: EncodedBlock, layers: range) -> None:
        size = block.header.layout.layer_bytes
        span = slice(layers.start * size, layers.stop * size)
        assert np.array_equal(block.data[span], self.expected.data[span])
        self.runs.append(layers)
        self.thread.add(threading.get_ident())


def test_layers_are_handed_on_in_order_as_they_arrive(store: BlockStore) -> None:
    block, row = published(store, large=True)
    layers = Layers(block)
    lease = store.load(row, layers)
    assert [layer for run in layers.runs for layer in run] == list(range(LARGE.layers))
    assert len(layers.runs) > 2, "a block of several megabytes came at once"
    assert layers.thread == {threading.get_ident()}
    assert same_block(lease.block, block)
    assert store.leases_out == 1
    lease.release()
    again = Layers(block)
    store.load(row, again).release()
    assert again.runs == [range(LARGE.layers)]
    assert store.leases_out == 0


def test_a_small_block_comes_at_once(store: BlockStore) -> None:
    block, row = published(store)
    layers = Layers(block)
    store.load(row, layers).release()
    assert layers.runs == [range(3)]


@pytest.mark.parametrize("tier", ["gpu", "pinned", "pageable"])
def test_every_tier_serves_what_the_disk_does(store: BlockStore, tier: str) -> None:
    block, row = published(store)
    store.place_by(RankedPlacement({row.key: tier}))
    found = []
    for _ in range(2):
        lease = store.load(row)
        assert same_block(lease.block, block)
        found.append(lease.tier)
        lease.release()
    assert found == ["disk", tier]
    memory = store.memory()
    assert memory[tier]["hits"] == memory[tier]["blocks"] == 1
    assert memory[tier]["used_bytes"] == row.size_bytes
    assert memory[tier]["kind"] == "plain RAM"
    assert memory["disk"] == {"hits": 1, "read_bytes": row.size_bytes}


def test_the_tiers_are_named_and_ordered(store: BlockStore) -> None:
    assert [tier.name for tier in store.tiers] == ["gpu", "pinned", "pageable"]
    assert store.pageable is store.tiers[2]
    assert list(store.memory()) == ["gpu", "pinned", "pageable", "disk", "leases"]
    assert store.memory()["gpu"]["budget_bytes"] == ENOUGH_BYTES


def test_retiring_forgets_a_block_in_every_tier(store: BlockStore, catalog: Catalog) -> None:
    _, row = published(store)
    for tier in ("pageable", "pinned", "gpu"):
        store.place_by(RankedPlacement({row.key: tier}))
        store.load(row).release()
    assert [tier.blocks for tier in store.tiers] == [1, 1, 1]
    store.retire([row])
    assert [tier.blocks for tier in store.tiers] == [0, 0, 0]
    assert [tier.used_bytes for tier in store.tiers] == [0, 0, 0]


def test_a_block_retired_while_it_is_read_is_not_kept(store: BlockStore) -> None:
    block, row = published(store)

    def retire(*_: object) -> None:
        store.retire([row])

    lease = store.load(row, retire)
    assert same_block(lease.block, block)
    assert store.pageable.blocks == 0
    lease.release()
    assert store.pageable.used_bytes == 0


def test_a_reader_with_an_old_row_gets_the_block_that_replaced_it(store: BlockStore, catalog: Catalog) -> None:
    _, old = published(store)
    newer = make_block(KEYS[0], "bf16", generation=1)
    row = store.publish(newer, 1, [1])
    lease = store.load(old)
    assert same_block(lease.block, newer)
    lease.release()
    store.quarantine(old)
    assert catalog.block(row.key) == row, "the new block was punished for the old one"
    store.retire([row])
    with pytest.raises(BlockDamaged, match="missing"):
        store.load(old)


@pytest.mark.parametrize("warm", [True, False])
def test_a_listener_that_raises_leaks_nothing(store: BlockStore, warm: bool) -> None:
    _, row = published(store, large=True)
    if warm:
        store.load(row).release()

    def broken(*_: object) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        store.load(row, broken)
    assert store.leases_out == 0
    assert store.pageable.shed() == (capacity_bytes(row.size_bytes) if warm else 0)
    assert store.pageable.used_bytes == 0


def test_threads_that_want_the_same_cold_block_keep_one(store: BlockStore) -> None:
    block, row = published(store, large=True)
    start = threading.Barrier(4)

    def load(_: int) -> bool:
        start.wait()
        lease = store.load(row, Layers(block))
        same = same_block(lease.block, block)
        lease.release()
        return same

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(load, range(4)))
    held_bytes = capacity_bytes(row.size_bytes)
    assert (store.leases_out, store.pageable.blocks, store.pageable.used_bytes) == (0, 1, held_bytes)


def test_a_lease_held_for_too_long_is_counted(tmp_path: Path, catalog: Catalog) -> None:
    now = [0.0]
    store = BlockStore(Home(tmp_path), catalog, StoreSettings(lease_age_s=5), clock=lambda: now[0])
    _, row = published(store)
    lease = store.load(row)
    assert store.memory()["leases"] == {"out": 1, "expired": 0}
    now[0] = 5
    with pytest.raises(LeaseExpired):
        _ = lease.block
    assert store.memory()["leases"] == {"out": 1, "expired": 1}
    lease.release()
    assert store.memory()["leases"] == {"out": 0, "expired": 1}


@pytest.mark.parametrize("warm", [True, False])
def test_a_lease_counts_and_ages_while_its_layers_are_handed_on(tmp_path: Path, catalog: Catalog, warm: bool) -> None:
    now = [0.0]
    settings = StoreSettings(pageable_bytes=ENOUGH_BYTES, lease_age_s=5)
    store = BlockStore(Home(tmp_path), catalog, settings, clock=lambda: now[0])
    _, row = published(store)
    if warm:
        store.load(row).release()
    seen = []

    def slow(*_: object) -> None:
        seen.append(store.memory()["leases"])
        now[0] = 5
        seen.append(store.memory()["leases"])

    lease = store.load(row, slow)
    assert seen == [{"out": 1, "expired": 0}, {"out": 1, "expired": 1}]
    with pytest.raises(LeaseExpired):
        _ = lease.block
    lease.release()
    assert store.memory()["leases"] == {"out": 0, "expired": 1}


def test_a_load_that_fails_leaves_no_lease(store: BlockStore) -> None:
    _, row = published(store)
    store.path(row).unlink()
    with pytest.raises(BlockDamaged):
        store.load(row)
    assert store.memory()["leases"] == {"out": 0, "expired": 0}


def test_writing_lets_others_go_first(tmp_path: Path, catalog: Catalog) -> None:
    seen: list[bool] = []
    home = Home(tmp_path)
    store = BlockStore(home, catalog, StoreSettings(), pause=lambda: seen.append(any(home.blocks.iterdir())))
    block, row = published(store, large=True)
    assert len(seen) >= row.size_bytes >> 20
    assert not any(seen), "the file was there before it was whole"
    lease = store.load(row)
    assert same_block(lease.block, block)
    lease.release()


@pytest.mark.parametrize("failing", [None, 0, 1, 2])
def test_a_write_that_yields_leaves_little_to_the_last_sync(tmp_path: Path, failing: int | None) -> None:
    """One sync of everything at the end would keep the disk from a question for as long as the whole write."""
    content, written = bytes(range(256)) * (20 << 12), Faults()
    publish_bytes(tmp_path / "a", [content], tmp_path, pause=lambda: None, operations=written.operations())
    syncs = [number for number, call in enumerate(written.calls) if call == "fsync"]
    assert len(syncs) == 4, "after 8, 16 and 20 MiB, then the folder"
    assert written.calls.count("write") == 20
    assert (tmp_path / "a").read_bytes() == content
    if failing is not None:
        faults = Faults(syncs[failing])
        with pytest.raises(StorageError):
            publish_bytes(tmp_path / "b", [content], tmp_path, pause=lambda: None, operations=faults.operations())
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
