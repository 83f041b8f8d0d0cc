"""Publishing blocks on a disk that fails at any step, and kills between file and row."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

import storage.store
from storage.catalog import Catalog
from storage.durable import publish_bytes, retire_file
from storage.errors import DiskFull, StorageError
from storage.home import Home
from storage.store import STUCK_COUNTER, BlockStore, StoreSettings
from tests.storage.blocks.builders import make_block, same_block
from tests.storage.catalog.builders import new_document, open_catalog
from tests.storage.faulty import Faults

ROOT = Path(__file__).resolve().parents[2]
STEPS = ["open", "preallocate", "write", "write", "fsync", "close", "rename", "open", "fsync", "close"]
KEY = "a" * 64
KILLED = """
import os, signal, sys
from pathlib import Path
import storage.store
from storage.home import Home
from storage.store import BlockStore, StoreSettings
from tests.storage.blocks.builders import make_block
from tests.storage.catalog.builders import new_document, open_catalog

def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)

home, when = Path(sys.argv[1]), sys.argv[2]
catalog = open_catalog(home)
catalog.publish_document(new_document("a"))
store = BlockStore(Home(home), catalog, StoreSettings())
if when == "before the row":
    catalog.publish_block = kill
elif when == "before the file is gone":
    row = store.publish(make_block("a" * 64), 1, [1])
    storage.store.retire_file = lambda *_, **__: kill()
    store.retire([row])
elif when == "before the row is gone":
    row = store.publish(make_block("a" * 64), 1, [1])
    catalog.finish_block_delete = kill
    store.retire([row])
elif when == "while a damaged block is set aside":
    row = store.publish(make_block("a" * 64), 1, [1])
    Path.rename = kill
    store.quarantine(row)
elif when == "while it is encoded again":
    store.publish(make_block("a" * 64), 1, [1])
    BlockStore(Home(home), catalog, StoreSettings(), pause=kill).publish(make_block("a" * 64, generation=1), 1, [1])
elif when == "before the row of another encoding":
    store.publish(make_block("a" * 64), 1, [1])
    catalog.publish_block = kill
    store.publish(make_block("a" * 64, generation=1), 1, [1])
store.publish(make_block("a" * 64), 1, [1])
kill()
"""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one", "two"]))
        yield catalog


@pytest.fixture
def store(tmp_path: Path, catalog: Catalog) -> BlockStore:
    return BlockStore(Home(tmp_path), catalog, StoreSettings())


def serves(store: BlockStore, catalog: Catalog, key: str = KEY) -> None:
    row = catalog.block(key)
    assert row is not None
    lease = store.load(row)
    assert same_block(lease.block, make_block(key))
    lease.release()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_failing_step_leaves_nothing(
    store: BlockStore, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, error: int
) -> None:
    faults = Faults(step, error)
    with monkeypatch.context() as patch:
        patch.setattr(storage.store, "publish_bytes", partial(publish_bytes, operations=faults.operations()))
        with pytest.raises(StorageError) as caught:
            store.publish(make_block(KEY), 1, [1])
    assert faults.calls[: step + 1] == STEPS[: step + 1]
    assert isinstance(caught.value, DiskFull) == (error != errno.EIO)
    assert "\n" not in str(caught.value)
    home = Home(tmp_path)
    assert catalog.all_blocks() == []
    assert list(home.temporary.iterdir()) == []
    assert list(home.blocks.iterdir()) == [], "a file without a row"
    store.publish(make_block(KEY), 1, [1])
    serves(store, catalog)


@pytest.mark.parametrize("step", range(len(STEPS)))
def test_a_block_that_is_there_survives_a_failing_publish(
    store: BlockStore, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """The same block once more (two chunks of one text): its file may be replaced, never lost."""
    store.publish(make_block(KEY), 1, [1])
    monkeypatch.setattr(storage.store, "publish_bytes", partial(publish_bytes, operations=Faults(step).operations()))
    with pytest.raises(StorageError):
        store.publish(make_block(KEY), 1, [2])
    serves(store, catalog)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("step", range(len(STEPS)))
def test_encoding_again_on_a_disk_that_fails_leaves_the_old_encoding(
    store: BlockStore, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, error: int
) -> None:
    row = store.publish(make_block(KEY), 1, [1])
    with monkeypatch.context() as patch:
        faults = Faults(step, error)
        patch.setattr(storage.store, "publish_bytes", partial(publish_bytes, operations=faults.operations()))
        with pytest.raises(StorageError):
            store.publish(make_block(KEY, "bf16", generation=1), 1, [1])
    assert catalog.all_blocks() == [row]
    assert [file.name for file in Home(tmp_path).blocks.iterdir()] == [row.file]
    assert list(Home(tmp_path).temporary.iterdir()) == []
    serves(store, catalog)


def test_a_pause_that_raises_ends_the_write(tmp_path: Path, catalog: Catalog) -> None:
    """The appliance is closed while a write waits for a question."""

    def closed() -> None:
        raise KeyboardInterrupt

    home = Home(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        BlockStore(home, catalog, StoreSettings(), pause=closed).publish(make_block(KEY), 1, [1])
    assert catalog.all_blocks() == []
    assert list(home.temporary.iterdir()) == list(home.blocks.iterdir()) == []
    assert not [link for link in Path("/proc/self/fd").iterdir() if str(link.resolve()).startswith(str(home.temporary))]


@pytest.mark.parametrize("there", [True, False])
def test_a_catalog_that_refuses_the_row(
    store: BlockStore, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    if there:
        store.publish(make_block(KEY), 1, [1])

    def full(*_: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(catalog, "publish_block", full)
        with pytest.raises(DiskFull):
            store.publish(make_block(KEY), 1, [2])
    assert len(list(Home(tmp_path).blocks.iterdir())) == int(there)
    if there:
        serves(store, catalog)


def test_an_old_file_that_cannot_be_removed_costs_only_its_room(
    store: BlockStore, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.publish(make_block(KEY, generation=0), 1, [1])
    with monkeypatch.context() as patch:
        patch.setattr(storage.store, "retire_file", partial(retire_file, operations=Faults(0).operations()))
        row = store.publish(make_block(KEY, generation=1), 1, [1])
    assert catalog.block(KEY) == row
    assert len(list(Home(tmp_path).blocks.iterdir())) == 2
    assert store.recover() == 1
    assert [file.name for file in Home(tmp_path).blocks.iterdir()] == [row.file]


def test_a_damaged_file_that_cannot_be_moved_is_removed(
    store: BlockStore, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = store.publish(make_block(KEY), 1, [1])

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no room for a name")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)
        store.quarantine(row)
    assert catalog.all_blocks() == []
    assert list(Home(tmp_path).blocks.iterdir()) == []


def test_a_delete_that_fails_is_finished_later(
    store: BlockStore, catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = store.publish(make_block(KEY), 1, [1])
    with monkeypatch.context() as patch:
        patch.setattr(storage.store, "retire_file", partial(retire_file, operations=Faults(0).operations()))
        assert store.retire([row]) == [store.path(row)]
    assert catalog.block(KEY) is None, "a row whose deletion began is served no more"
    assert catalog.counters()[STUCK_COUNTER] == 1
    store.recover()
    assert catalog.all_blocks() == []
    assert list(Home(tmp_path).blocks.iterdir()) == []


@pytest.mark.parametrize(
    ("when", "blocks"),
    [
        ("before the row", 0),
        ("after the row", 1),
        ("before the file is gone", 0),
        ("before the row is gone", 0),
        ("while a damaged block is set aside", 0),
        ("while it is encoded again", 1),
        ("before the row of another encoding", 1),
    ],
)
def test_a_kill_leaves_file_and_row_in_step(tmp_path: Path, when: str, blocks: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path), when],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    home = Home(tmp_path)
    with open_catalog(tmp_path) as catalog:
        store = BlockStore(home, catalog, StoreSettings())
        dropped = store.recover()
        assert dropped == (
            when in {"before the row", "while it is encoded again", "before the row of another encoding"}
        )
        assert len(catalog.all_blocks()) == len(list(home.blocks.iterdir())) == blocks
        assert store.missing() == []
        if not blocks:
            store.publish(make_block(KEY), 1, [1])
        serves(store, catalog)
