"""The catalog under kills, damage, a full disk and locks (research/reliability.md §10, tests 1 to 4 and 10 to 12)."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from storage.catalog import Catalog, set_catalog_aside
from storage.catalog.reserve import RESERVE_BYTES, Reserve
from storage.errors import CatalogDamaged, DiskFull, HomeBusy, StorageError
from storage.home import Home
from tests.storage.catalog.builders import new_block, new_document, open_catalog

ROOT = Path(__file__).resolve().parents[2]
KILLED = """
import os, signal, sys
from importlib import import_module
from pathlib import Path
from tests.storage.catalog.builders import new_document, open_catalog

home, module, name, before, action = Path(sys.argv[1]), *sys.argv[2:]
target = import_module(module)
call = getattr(target, name)
left = [int(before)]

def killing(*arguments):
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    left[0] -= 1
    return call(*arguments)

catalog = open_catalog(home)
setattr(target, name, killing)
if action == "publish":
    catalog.publish_document(new_document("new", ["fresh words"] * 3, path="/f"))
elif action == "commit":
    catalog.publish_document(new_document("new", ["fresh words"] * 3, path="/f"))
    os.kill(os.getpid(), signal.SIGKILL)
else:
    catalog.begin_delete("id-old")
    catalog.finish_delete("id-old")
"""
DOCUMENTS = "storage.catalog.documents"
DELETION = "storage.catalog.deletion"


def _run_and_be_killed(home: Path, module: str, name: str, before: int, action: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(home), module, name, str(before), action],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


@pytest.mark.parametrize(
    ("name", "before"),
    [("remove_words", 0), ("insert_words", 0), ("insert_vectors", 2), ("bump_version", 0), ("set_source", 0)],
)
def test_a_kill_while_publishing_leaves_the_old_document(tmp_path: Path, name: str, before: int) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("old", ["stale words"], path="/f"))
        version = catalog.vectors_version(1)
    _run_and_be_killed(tmp_path, DOCUMENTS, name, before, "publish")
    with Catalog.open(Home(tmp_path)) as catalog:
        assert catalog.faults() == []
        assert [row.id for row in catalog.documents()] == ["id-old"]
        assert catalog.search_words(1, "fresh", 5) == []
        assert len(catalog.search_words(1, "stale", 5)) == 1
        assert catalog.vectors(1)[0].size == 2
        assert catalog.vectors_version(1) == version
        assert catalog.publish_document(new_document("new", path="/f")) == ["id-old"]


def test_a_kill_after_the_commit_keeps_the_new_document(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("old", path="/f"))
    _run_and_be_killed(tmp_path, DOCUMENTS, "set_source", 99, "commit")
    with Catalog.open(Home(tmp_path)) as catalog:
        assert [row.id for row in catalog.documents()] == ["id-new"]
        assert [row.id for row in catalog.deleting_documents()] == ["id-old"]


@pytest.mark.parametrize("name", ["retire", "remove_words", "erase_removed_words"])
def test_a_kill_while_deleting_is_finished_later(tmp_path: Path, name: str) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("old", ["canaryword stays secret"]))
    _run_and_be_killed(tmp_path, DELETION, name, 0, "delete")
    with Catalog.open(Home(tmp_path)) as catalog:
        assert catalog.faults() == []
        if name == "retire":
            assert [row.id for row in catalog.documents()] == ["id-old"]
            catalog.begin_delete("id-old")
        if name != "erase_removed_words":
            assert [row.id for row in catalog.deleting_documents()] == ["id-old"]
            assert catalog.finish_delete("id-old")
        assert _bytes_on_disk(tmp_path, b"canaryword") == 0


def _bytes_on_disk(home: Path, canary: bytes) -> int:
    return sum(file.read_bytes().count(canary) for file in home.glob("catalog.db*"))


@pytest.mark.parametrize("seed", range(3))
def test_deleting_leaves_no_byte(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with open_catalog(tmp_path) as catalog:
        catalog.ensure_collection("other", "embedding-1", 4, 512)
        for number in range(30):
            texts = [
                f"canary{number}q sentence {' '.join(str(chance.random()) for _ in range(chance.choice([1, 20, 150])))}"
                for _ in range(chance.randint(1, 5))
            ]
            name = f"canary{number}q"
            catalog.publish_document(new_document(name, texts, path=f"/{name}/x.txt"))
        deleted = chance.sample(range(30), 15)
        assert _bytes_on_disk(tmp_path, f"canary{deleted[0]}q".encode()) > 2, "the test could not fail"
        for number in deleted:
            catalog.begin_delete(f"id-canary{number}q")
            assert catalog.finish_delete(f"id-canary{number}q")
            assert _bytes_on_disk(tmp_path, f"canary{number}q".encode()) == 0
        for number in deleted:
            assert _bytes_on_disk(tmp_path, f"canary{number}q".encode()) == 0
        assert len(catalog.documents()) == 15
        assert catalog.faults() == []


def test_a_reader_that_holds_the_log_delays_erasing_only(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.publish_document(new_document("old", ["canaryword"]))
    catalog._connection._sqlite.execute("PRAGMA busy_timeout = 50")
    reader = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM documents").fetchone()
    catalog.begin_delete("id-old")
    assert not catalog.finish_delete("id-old")
    reader.close()
    catalog.close()
    with Catalog.open(Home(tmp_path)):
        assert _bytes_on_disk(tmp_path, b"canaryword") == 0


def test_a_full_disk_changes_nothing_and_allows_deleting(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("old", ["old words"]))
        sqlite = catalog._connection._sqlite
        pages = sqlite.execute("PRAGMA page_count").fetchone()[0]
        sqlite.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(10):
            with pytest.raises(DiskFull, match="free some space"):
                catalog.publish_document(new_document("big", ["many words " * 500] * 20))
        assert [row.id for row in catalog.documents()] == ["id-old"]
        assert len(catalog.search_words(1, "old", 3)) == 1
        catalog.begin_delete("id-old")
        catalog.finish_delete("id-old")
        assert catalog.documents() == catalog.deleting_documents() == []
        sqlite.execute("PRAGMA max_page_count = 1000000")
        catalog.publish_document(new_document("big", ["many words " * 500] * 20))
        assert catalog.faults() == []


def test_the_reserve_is_spent_when_the_disk_is_full_and_refilled_after(tmp_path: Path) -> None:
    free = 100 * RESERVE_BYTES
    reserve = Reserve(tmp_path / "reserve", lambda folder: free)
    reserve.refill()
    assert (tmp_path / "reserve").stat().st_size == RESERVE_BYTES
    reserve.spend_when_full()
    assert (tmp_path / "reserve").exists()
    free = 100
    reserve.spend_when_full()
    reserve.spend_when_full()
    reserve.refill()
    assert not (tmp_path / "reserve").exists()


def test_a_locked_catalog_is_one_clear_line(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog._connection._sqlite.execute("PRAGMA busy_timeout = 50")
        other = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(HomeBusy, match="in use by another process"):
            catalog.count("x")
        other.close()
        catalog.count("x")


def _read_everything(catalog: Catalog) -> None:
    for document in catalog.documents():
        catalog.chunks_of(document.id)
        catalog.sources_of(document.id)
        catalog.blocks_only_of(document.id)
    for collection in catalog.collections():
        catalog.vectors(collection.id)
        catalog.search_words(collection.id, "words of a chunk", 5)
    catalog.token_ids(range(10), "t")
    catalog.all_blocks()
    catalog.counters()


@pytest.fixture
def whole(tmp_path: Path) -> bytes:
    """The bytes of a catalog that was closed well."""
    with open_catalog(tmp_path / "whole") as catalog:
        for number in range(4):
            catalog.publish_document(new_document(str(number), [f"words of chunk {number} " * 30] * 3))
        catalog.publish_block(new_block("k"), [1])
        catalog.keep_token_ids("t", {1: [1, 2, 3]})
        catalog.count("x")
    return (tmp_path / "whole" / "catalog.db").read_bytes()


@pytest.mark.parametrize("read_only", [False, True])
def test_every_truncation_is_refused(tmp_path: Path, whole: bytes, read_only: bool) -> None:
    home = Home(tmp_path / "home")
    home.create()
    for length in sorted({1, 50, 100, 4095, *range(4096, len(whole), 4096 * 3), len(whole) - 1}):
        for file in home.root.glob("catalog.db*"):
            file.unlink()
        home.catalog_file.write_bytes(whole[:length])
        with pytest.raises(CatalogDamaged, match="verify --rebuild"):
            _read_everything(Catalog.open(home, read_only))


def test_flipped_bits_never_surface_as_another_error(tmp_path: Path, whole: bytes) -> None:
    home = Home(tmp_path / "home")
    home.create()
    chance = random.Random(7)
    refused = 0
    for position in [*range(0, 100, 3), *(chance.randrange(len(whole)) for _ in range(150))]:
        for file in home.root.glob("catalog.db*"):
            file.unlink()
        damaged = bytearray(whole)
        damaged[position] ^= 1 << chance.randrange(8)
        home.catalog_file.write_bytes(damaged)
        try:
            with Catalog.open(home) as catalog:
                _read_everything(catalog)
        except StorageError:
            refused += 1
    assert refused > 5, "no flip was noticed: the test could not fail"


@pytest.mark.parametrize("content", [b"garbage", b"\x00" * 5000, b"SQLite format 3\x00" + b"\xff" * 5000])
@pytest.mark.parametrize("read_only", [False, True])
def test_garbage_is_refused_and_left_alone(tmp_path: Path, content: bytes, read_only: bool) -> None:
    home = Home(tmp_path)
    home.create()
    home.catalog_file.write_bytes(content)
    with pytest.raises(CatalogDamaged, match="verify --rebuild"):
        Catalog.open(home, read_only)
    assert home.catalog_file.read_bytes() == content


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("left", [None, b""])
def test_a_lost_catalog_is_not_silently_a_new_one(tmp_path: Path, left: bytes | None, read_only: bool) -> None:
    home = Home(tmp_path)
    home.create()
    (home.documents / "abc.json").write_text("{}")
    if left is not None:
        home.catalog_file.write_bytes(left)
    with pytest.raises(CatalogDamaged, match="documents are stored: run `appliance verify --rebuild`"):
        Catalog.open(home, read_only)
    with Catalog.open(home, rebuild=True) as catalog:
        assert catalog.documents() == []


def test_a_damaged_catalog_is_set_aside_with_its_log(tmp_path: Path) -> None:
    home = Home(tmp_path)
    for turn in range(2):
        catalog = open_catalog(tmp_path)
        catalog.publish_document(new_document("a"))
        catalog.close()
        (tmp_path / "catalog.db-wal").write_bytes(b"a log of the old file" * 100)
        home.catalog_file.write_bytes(b"garbage")
        with pytest.raises(CatalogDamaged):
            Catalog.open(home)
        moved = set_catalog_aside(home)
        assert f"catalog-{turn + 1}.db" in {file.name for file in moved}
        assert list(tmp_path.glob("catalog.db*")) == []
        with Catalog.open(home, rebuild=True) as again:
            assert again.documents() == []
            assert again.faults() == []
    assert len(list(home.quarantine.glob("catalog-*.db"))) == 2
