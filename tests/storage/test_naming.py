"""One file, several writers: a file gets its name and its row, or loses both, in one step."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from storage.blocks import EncodedBlock
from storage.catalog import BlockRow, Catalog
from storage.errors import StorageError, UnknownRow
from storage.geometry import Geometry
from storage.home import Home
from storage.store import BlockStore, StoreSettings
from tests.storage.blocks.builders import make_block, same_block
from tests.storage.catalog.builders import new_document, open_catalog

KEY, OTHER = "a" * 64, "b" * 64
# How long the second writer is given to do what it must not.
PATIENCE_S = 0.2


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one", "two"]))
        yield catalog


@pytest.fixture
def store(tmp_path: Path, catalog: Catalog) -> BlockStore:
    return BlockStore(Home(tmp_path), catalog, StoreSettings())


class Between:
    """Calls the system's function, and begins `other` on another thread before (or after) it; only once."""

    def __init__(self, call: Callable[..., Any], other: Callable[[], object], after: bool = False) -> None:
        self._call = call
        self._after = after
        self._errors: list[Exception] = []
        self.thread: threading.Thread | None = None
        self._other = other

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self._after:
            result = self._call(*arguments, **named)
            self._begin()
            return result
        self._begin()
        return self._call(*arguments, **named)

    def _begin(self) -> None:
        if self.thread is None:
            self.thread = threading.Thread(target=self._run)
            self.thread.start()
            self.thread.join(PATIENCE_S)

    def _run(self) -> None:
        try:
            self._other()
        except StorageError as error:
            self._errors.append(error)

    def end(self) -> list[Exception]:
        """What the other thread raised."""
        assert self.thread is not None, "nothing came between"
        self.thread.join()
        return self._errors


def serves(store: BlockStore, row: BlockRow, block: EncodedBlock) -> bool:
    lease = store.load(row)
    same = same_block(lease.block, block)
    lease.release()
    return same


def test_a_publish_that_fails_spares_the_file_another_made_ready(
    store: BlockStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The failing one looks whether a row names the file; the other commits; the first unlinks."""
    block = make_block(KEY)
    between = Between(catalog.block, lambda: store.publish(block, 1, [1]), after=True)
    monkeypatch.setattr(catalog, "block", between)
    with pytest.raises(UnknownRow):
        store.publish(block, 1, [77])
    assert between.end() == []
    row = catalog.blocks([KEY])[KEY]
    assert store.missing() == []
    assert serves(store, row, block)


@pytest.mark.parametrize("action", ["retire", "quarantine"])
def test_a_block_that_goes_while_it_is_published_leaves_no_row_without_a_file(
    store: BlockStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    block = make_block(KEY)
    row = store.publish(block, 1, [1])
    go: Callable[[], object] = (lambda: store.retire([row])) if action == "retire" else (lambda: store.quarantine(row))
    between = Between(catalog.publish_block, go)
    monkeypatch.setattr(catalog, "publish_block", between)
    store.publish(block, 1, [1])
    assert between.end() == []
    assert catalog.all_blocks() == []
    assert not store.path(row).exists()


def test_damage_of_an_old_file_spares_the_block_that_replaces_it(
    store: BlockStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = store.publish(make_block(KEY), 1, [1])
    newer = make_block(KEY, "bf16", generation=1)
    between = Between(catalog.begin_block_delete, lambda: store.publish(newer, 1, [1]))
    monkeypatch.setattr(catalog, "begin_block_delete", between)
    store.quarantine(old)
    assert between.end() == []
    row = catalog.block(KEY)
    assert row is not None
    assert serves(store, row, newer)


def test_retiring_an_old_row_leaves_no_file_of_the_new_one(store: BlockStore, catalog: Catalog, tmp_path: Path) -> None:
    old = store.publish(make_block(KEY), 1, [1])
    store.publish(make_block(KEY, "bf16", generation=1), 1, [1])
    assert store.retire([old]) == []
    assert catalog.all_blocks() == []
    assert list(Home(tmp_path).blocks.iterdir()) == []


def test_an_unclaimed_file_that_is_published_meanwhile_stays(
    store: BlockStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = make_block(KEY)
    monkeypatch.setattr(catalog, "unclaimed", lambda *_: [block.header.file_name])
    between = Between(catalog.unclaimed, lambda: store.publish(block, 1, [1]), after=True)
    monkeypatch.setattr(catalog, "unclaimed", between)
    store.drop_unclaimed(1)
    assert between.end() == []
    row = catalog.block(KEY)
    assert row is not None
    assert serves(store, row, block)


def test_nobody_waits_for_a_write_that_is_paused(tmp_path: Path, catalog: Catalog) -> None:
    """A question keeps what it computed, and takes damage out of use, while a background write stands still."""
    store: BlockStore

    def question() -> None:
        store.retire([store.publish(make_block(OTHER), 1, [2], yields=False)])

    between = Between(lambda: None, question)
    store = BlockStore(Home(tmp_path), catalog, StoreSettings(), pause=between)
    paused = make_block(KEY, geometry=Geometry(layers=7, kv_heads=4, head_dim=64), tokens=1200)
    row = store.publish(paused, 1, [1])
    assert between.end() == []
    assert catalog.all_blocks() == [row]
    assert serves(store, row, paused)
