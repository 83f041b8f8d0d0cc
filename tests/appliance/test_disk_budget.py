"""The disk budget: who goes, who stays, and that nothing is computed and retired in turns."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from appliance import disk_budget
from appliance.disk_budget import RETIRED_COUNTER, DiskBudget, disk_limit
from storage.catalog import Catalog, RankedBlock
from storage.home import Home
from storage.store import BlockStore, StoreSettings
from tests.storage.blocks.builders import make_block
from tests.storage.catalog.builders import new_document, open_catalog

KEYS = [letter * 64 for letter in "abcdefgh"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    """A document of eight chunks, ids 1 to 8."""
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", [f"text {number}" for number in range(8)]))
        yield catalog


@pytest.fixture
def store(home: Home, catalog: Catalog) -> BlockStore:
    return BlockStore(home, catalog, StoreSettings())


def publish(store: BlockStore, *chunks: int, fingerprint: str = "f" * 64) -> int:
    """A block for each of these chunks; the size of one."""
    size_bytes = 0
    for chunk in chunks:
        block = make_block(KEYS[chunk - 1], seed=chunk)
        block = replace(block, header=replace(block.header, fingerprint=fingerprint))
        size_bytes = store.publish(block, 1, [chunk]).size_bytes
    return size_bytes


def stored(catalog: Catalog, home: Home) -> list[int]:
    """The chunks that have a block; rows and files agree."""
    rows = catalog.all_blocks()
    assert {row.state for row in rows} <= {"ready"}
    assert {row.file for row in rows} == {file.name for file in home.blocks.iterdir()}
    return sorted(KEYS.index(row.key) + 1 for row in rows)


def test_colder_blocks_make_room(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, 1, 2, 3, 4)
    catalog.record_uses([[1], [3], [3], [4], [4], [4]])
    budget = DiskBudget(home, catalog, store, limit_bytes=4 * size + size // 2)
    assert not budget.room_for(size, 0)  # nothing is colder than never asked for
    assert stored(catalog, home) == [1, 2, 3, 4]
    assert budget.room_for(size, 0.5)
    assert stored(catalog, home) == [1, 3, 4]
    publish(store, 5)
    assert budget.room_for(2 * size, 2.5)
    assert stored(catalog, home) == [3, 4]  # the newcomer nobody asked for, then the one asked for once
    assert catalog.counters()[RETIRED_COUNTER] == 3
    assert [chunk.id for chunk in catalog.chunks(range(1, 9))] == list(range(1, 9))  # all are searchable


def test_a_no_retires_nothing(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, 1, 2, 3)
    catalog.record_uses([[2], [3], [3]])
    budget = DiskBudget(home, catalog, store, limit_bytes=3 * size)
    assert not budget.room_for(3 * size, 1.5)  # one of the three is hotter
    assert not budget.room_for(4 * size, 99.0)  # larger than all there is
    assert stored(catalog, home) == [1, 2, 3]
    assert RETIRED_COUNTER not in catalog.counters()


def test_what_fits_is_not_looked_at(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, 1)
    budget = DiskBudget(home, catalog, store, limit_bytes=3 * size)
    assert budget.room_for(size, 0)
    assert budget.room_for(size, 0)
    assert not budget.room_for(3 * size, 0)
    assert budget.room_for(size, 0)  # what was promised and never came counts no more


def test_idle_work_does_not_compute_and_retire_in_turns(home: Home, catalog: Catalog, store: BlockStore) -> None:
    """Every round offers each chunk that lacks a block; after the first nothing moves any more."""
    size = publish(store, 1)
    catalog.record_uses([[3, 5, 7]] * 3 + [[4]])
    budget = DiskBudget(home, catalog, store, limit_bytes=3 * size + 100)
    history = []
    for _ in range(4):
        moved = 0
        for chunk in range(1, 9):
            score = catalog.chunk_scores([chunk]).get(chunk, 0.0)
            if chunk not in stored(catalog, home) and budget.room_for(size, score):
                publish(store, chunk)
                moved += 1
        moved += budget.enforce()
        history.append(moved)
        assert len(stored(catalog, home)) <= 3
    assert history[0] > 0
    assert history[1:] == [0, 0, 0]
    assert stored(catalog, home) == [3, 5, 7]


def test_a_lower_limit_retires_the_coldest(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, *range(1, 9))
    catalog.record_uses([[6], [2, 6], [2, 6, 8]])
    turns: list[int] = []

    @contextmanager
    def turn() -> Iterator[None]:
        turns.append(len(catalog.all_blocks()))
        yield

    with pytest.MonkeyPatch.context() as few:
        few.setattr(disk_budget, "_RETIRED_A_TURN", 2)
        assert DiskBudget(home, catalog, store, 3 * size, turn).enforce() == 5
    assert stored(catalog, home) == [2, 6, 8]
    assert turns == [8, 6, 4, 3]
    assert DiskBudget(home, catalog, store, 3 * size).enforce() == 0
    stopped = threading.Event()
    stopped.set()
    assert DiskBudget(home, catalog, store, 0).enforce(stopped) == 0
    assert DiskBudget(home, catalog, store, 0).job(threading.Event()) is None
    assert stored(catalog, home) == []


def test_of_equals_the_newest_goes_first(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, 1, 2, 3)
    DiskBudget(home, catalog, store, 2 * size).enforce()
    assert stored(catalog, home) == [1, 2]


def test_another_models_blocks_go_first(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, 1, 2, fingerprint="e" * 64)
    publish(store, 3)
    catalog.record_uses([[1]] * 5)
    budget = DiskBudget(home, catalog, store, 3 * size)
    budget.fingerprint = "f" * 64
    assert budget.room_for(size, 0)
    assert stored(catalog, home) == [1, 3]
    publish(store, 4)
    assert budget.room_for(size, 0)
    assert stored(catalog, home) == [3, 4]
    publish(store, 5)
    assert not budget.room_for(size, 0)


def test_ranks_that_changed_count(home: Home, catalog: Catalog, store: BlockStore) -> None:
    size = publish(store, 1, 2, 3)
    budget = DiskBudget(home, catalog, store, 3 * size)
    assert not budget.room_for(size, 0)
    catalog.record_uses([[1], [1]])
    assert budget.room_for(size, 1)
    assert stored(catalog, home) == [1, 2]
    publish(store, 4)
    store.retire([row for row in catalog.all_blocks() if row.key == KEYS[1]])  # by somebody else
    assert budget.room_for(size, 0)
    publish(store, 5)
    assert budget.room_for(size, 1)
    assert stored(catalog, home) == [1, 4]


def test_ranking_is_for_when_it_could_change_who_goes(
    home: Home, catalog: Catalog, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = publish(store, 1, 2, 3)
    catalog.record_uses([[1]])
    budget = DiskBudget(home, catalog, store, 3 * size)
    ranked: list[int] = []
    rank = Catalog.ranked_blocks

    def counted(self: Catalog) -> list[RankedBlock]:
        ranked.append(1)
        return rank(self)

    monkeypatch.setattr(Catalog, "ranked_blocks", counted)
    assert [budget.room_for(size, 0) for _ in range(5)] == [False] * 5  # a long ingest past the limit
    assert len(ranked) == 1
    for chunk in (4, 5):
        assert budget.room_for(size, 3)
        publish(store, chunk)
    assert len(ranked) == 1
    assert budget.room_for(size, 2)
    assert (len(ranked), stored(catalog, home)) == (1, [4, 5])


def test_the_default_limit_is_half_of_what_could_be_had(
    home: Home, catalog: Catalog, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = publish(store, 1, 2, 3, 4)
    for_blocks = [8 * size]  # of the disk, what others leave

    class Usage:
        @property
        def free(self) -> int:
            return for_blocks[0] - sum(file.stat().st_size for file in home.blocks.iterdir())

    monkeypatch.setattr("shutil.disk_usage", lambda _path: Usage())
    budget = DiskBudget(home, catalog, store)
    assert budget.enforce() == 0
    assert budget.limit_bytes == disk_limit(home, 4 * size) == 4 * size
    assert disk_limit(home, 4 * size, 77) == 77
    assert not budget.room_for(size, 0)
    for_blocks[0] -= 2  # moves all the time: a little is let be
    assert budget.enforce() == 0
    for_blocks[0] = 6 * size
    assert budget.enforce() == 1
    assert stored(catalog, home) == [1, 2, 3]
