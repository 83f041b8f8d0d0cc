"""The block store over a real catalog: publishing, serving, retiring, damage, recovery."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.blocks import EncodedBlock
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.catalog import BlockRow, Catalog
from storage.errors import BlockDamaged, StorageError, UnknownRow
from storage.home import Home
from storage.store import DAMAGED_COUNTER, QUARANTINED_FILES, BlockStore, StoreSettings
from tests.storage.blocks.builders import make_block, packed_bytes, same_block
from tests.storage.catalog.builders import new_document, open_catalog

KEYS = [letter * 64 for letter in "abcdef"]
ENOUGH_BYTES = 1 << 20


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one", "two", "three"]))
        yield catalog


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture(params=[0, ENOUGH_BYTES], ids=["disk only", "with memory"])
def store(request: pytest.FixtureRequest, home: Home, catalog: Catalog) -> BlockStore:
    return BlockStore(home, catalog, StoreSettings(pageable_bytes=request.param))


@pytest.fixture
def disk_store(home: Home, catalog: Catalog) -> BlockStore:
    return BlockStore(home, catalog, StoreSettings())


def published(store: BlockStore, key: str = KEYS[0], chunk: int = 1) -> tuple[EncodedBlock, BlockRow]:
    block = make_block(key, seed=KEYS.index(key))
    return block, store.publish(block, 1, [chunk])


def served(store: BlockStore, row: BlockRow) -> tuple[EncodedBlock, str]:
    lease = store.load(row)
    lease.release()
    return lease.block, lease.tier


def test_a_published_block_is_served(store: BlockStore, catalog: Catalog, home: Home) -> None:
    block, row = published(store)
    assert catalog.block(KEYS[0]) == row
    path = store.path(row)
    assert path.read_bytes() == packed_bytes(block)
    assert row.size_bytes == path.stat().st_size
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(home.temporary.iterdir()) == []
    lease = store.load(row)
    assert lease.tier == "disk"
    assert same_block(lease.block, block)
    lease.release()
    expected = "pageable" if store.pageable.blocks else "disk"
    assert served(store, row)[1] == expected
    store.check(row)
    assert store.missing() == []


def test_the_memory_tier_serves_without_the_file(home: Home, catalog: Catalog) -> None:
    store = BlockStore(home, catalog, StoreSettings(pageable_bytes=ENOUGH_BYTES))
    block, row = published(store)
    served(store, row)
    store.path(row).unlink()
    found, tier = served(store, row)
    assert tier == "pageable"
    assert same_block(found, block)
    with pytest.raises(BlockDamaged):
        store.check(row)  # looks past memory


def test_a_lease_is_released_once(store: BlockStore) -> None:
    _, row = published(store)
    lease = store.load(row)
    lease.release()
    with pytest.raises(RuntimeError, match="twice"):
        lease.release()


def test_two_leases_never_share_memory(disk_store: BlockStore) -> None:
    (one, row), (two, other) = published(disk_store), published(disk_store, KEYS[1], 2)
    first, second = disk_store.load(row), disk_store.load(other)
    assert same_block(first.block, one)
    assert same_block(second.block, two)
    assert first.block.buffer is not None
    address = first.block.buffer.ctypes.data
    first.release()
    third = disk_store.load(row)
    assert third.block.buffer is not None
    assert third.block.buffer.ctypes.data == address
    assert same_block(second.block, two)


def test_a_leased_block_survives_retire(store: BlockStore, catalog: Catalog) -> None:
    block, row = published(store)
    lease = store.load(row)
    store.retire([row])
    assert catalog.block(row.key) is None
    assert not store.path(row).exists()
    published(store, KEYS[1])
    assert same_block(lease.block, block)
    lease.release()
    assert store.pageable.used_bytes == 0
    with pytest.raises(BlockDamaged, match="missing"):
        store.load(row)


def test_retiring_leaves_no_copy(store: BlockStore, catalog: Catalog, home: Home) -> None:
    _, row = published(store)
    store.quarantine(row)
    _, row = published(store)
    assert len(list(home.quarantine.iterdir())) == 1
    _, other = published(store, KEYS[1], 2)
    store.retire([row])
    assert list(home.quarantine.iterdir()) == []
    assert [file.name for file in home.blocks.iterdir()] == [other.file]
    assert catalog.all_blocks() == [other]


def test_damage_is_set_aside_and_counted(store: BlockStore, catalog: Catalog, home: Home) -> None:
    block, row = published(store)
    path = store.path(row)
    content = bytearray(path.read_bytes())
    content[row.header_bytes + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(BlockDamaged):
        store.load(row)
    store.quarantine(row)
    assert catalog.block(row.key) is None
    assert catalog.all_blocks() == []
    assert catalog.counters()[DAMAGED_COUNTER] == 1
    assert (home.quarantine / row.file).read_bytes() == content
    assert store.publish(block, 1, [1]) == row, "the repair is the block it was"
    assert same_block(served(store, row)[0], block)


def test_a_missing_file_is_found_and_quarantined(store: BlockStore, catalog: Catalog, home: Home) -> None:
    _, row = published(store)
    _, other = published(store, KEYS[1], 2)
    _, short = published(store, KEYS[2], 3)
    store.path(row).unlink()
    store.path(short).write_bytes(b"")
    assert store.missing() == [row, short]
    for lost in store.missing():
        store.quarantine(lost)
    assert catalog.all_blocks() == [other]
    assert catalog.counters()[DAMAGED_COUNTER] == 2
    assert [file.name for file in home.quarantine.iterdir()] == [short.file]
    assert store.missing() == []


def test_the_quarantine_is_bounded(disk_store: BlockStore, home: Home) -> None:
    for number in range(QUARANTINED_FILES + 3):
        row = disk_store.publish(make_block(f"{number:064x}"), 1, [1])
        disk_store.quarantine(row)
    kept = sorted(file.name[:64] for file in home.quarantine.iterdir())
    assert kept == [f"{number:064x}" for number in range(3, QUARANTINED_FILES + 3)]


def test_another_generation_replaces_the_file_and_the_copy_in_memory(store: BlockStore, home: Home) -> None:
    _, row = published(store)
    served(store, row)
    newer = make_block(KEYS[0], "bf16", generation=1)
    row = store.publish(newer, 1, [1])
    assert [file.name for file in home.blocks.iterdir()] == [row.file]
    assert same_block(served(store, row)[0], newer)
    assert same_block(served(store, row)[0], newer)


def test_an_older_generation_does_not_replace_a_newer(store: BlockStore, catalog: Catalog, home: Home) -> None:
    newest = store.publish(make_block(KEYS[0], generation=2), 1, [1])
    assert store.publish(make_block(KEYS[0], generation=1), 1, [1]) == newest
    assert catalog.all_blocks() == [newest]
    assert [file.name for file in home.blocks.iterdir()] == [newest.file]


def test_a_block_of_a_deleted_document_is_not_kept(store: BlockStore, catalog: Catalog, home: Home) -> None:
    catalog.begin_delete("id-a")
    with pytest.raises(UnknownRow):
        published(store)
    assert list(home.blocks.iterdir()) == []
    assert catalog.all_blocks() == []


def test_publishing_again_for_a_deleted_chunk_spares_the_file(store: BlockStore, catalog: Catalog) -> None:
    """Two documents of the same text share a block; the second is deleted while its block is computed."""
    block, row = published(store)
    with pytest.raises(StorageError):
        store.publish(replace(block, header=replace(block.header, generation=0)), 99, [1])
    assert catalog.block(row.key) == row
    assert same_block(served(store, row)[0], block)


def test_recover_finishes_what_a_kill_left(store: BlockStore, catalog: Catalog, home: Home) -> None:
    (_, half), (_, kept) = published(store), published(store, KEYS[1], 2)
    catalog.begin_block_delete([half.key])
    (home.temporary / "draft.tmp").write_bytes(b"x")
    (home.blocks / make_block(KEYS[2]).header.file_name).write_bytes(packed_bytes(make_block(KEYS[2])))
    (home.blocks / "link").symlink_to(home.blocks / kept.file)
    (home.blocks / "lost+found").mkdir()
    assert store.recover() == 3
    assert catalog.all_blocks() == [kept]
    assert sorted(file.name for file in home.blocks.iterdir()) == sorted([kept.file, "lost+found"])
    assert list(home.temporary.iterdir()) == []
    assert store.recover() == 0
    served(store, kept)


def test_sizes_are_whole_pages(disk_store: BlockStore) -> None:
    _, row = published(disk_store)
    assert row.size_bytes % ALIGNMENT_BYTES == 0
    assert row.header_bytes % ALIGNMENT_BYTES == 0
