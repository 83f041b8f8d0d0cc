"""Settings, opening, reading beside a writer, threads."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from storage.catalog import Catalog, CatalogMissing
from storage.errors import StorageError
from storage.home import Home
from tests.storage.catalog.builders import new_document, open_catalog

SETTINGS = {
    "journal_mode": "wal",
    "synchronous": 2,
    "busy_timeout": 5000,
    "foreign_keys": 1,
    "secure_delete": 1,
    "mmap_size": 0,
    "temp_store": 2,
    "trusted_schema": 0,
    "cell_size_check": 1,
    "wal_autocheckpoint": 1000,
}


def test_settings_are_those_of_the_table(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog, catalog._connection.read() as sqlite:
        found = {name: sqlite.execute(f"PRAGMA {name}").fetchone()[0] for name in SETTINGS}
        strict = sqlite.execute(
            "SELECT name FROM pragma_table_list WHERE schema = 'main' AND type = 'table' AND strict = 0"
        ).fetchall()
    assert found == SETTINGS
    assert {row[0] for row in strict} <= {"_sqlite_migrations", "sqlite_schema", "sqlite_sequence"}


def test_files_are_for_the_owner_alone(tmp_path: Path) -> None:
    with open_catalog(tmp_path / "home") as catalog:
        catalog.publish_document(new_document("a"))
        for file in (tmp_path / "home").glob("catalog.db*"):
            assert file.stat().st_mode & 0o077 == 0, file
        assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_closing_empties_the_log(tmp_path: Path) -> None:
    catalog = open_catalog(tmp_path)
    catalog.publish_document(new_document("a"))
    log = tmp_path / "catalog.db-wal"
    assert log.stat().st_size > 0
    assert catalog.checkpoint()
    assert log.stat().st_size == 0
    catalog.close()
    catalog.close()
    assert not log.exists()


def test_a_reader_works_beside_a_writer_and_never_writes(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as writer:
        writer.publish_document(new_document("a"))
        reader = Catalog.open(Home(tmp_path), read_only=True)
        assert len(reader.documents()) == 1
        with writer._connection.write() as sqlite:
            sqlite.execute("UPDATE documents SET title = 'half'")
            assert reader.documents()[0].title == "Title of a"
        writer.publish_document(new_document("b"))
        assert len(reader.documents()) == 2
        with pytest.raises(StorageError, match="for reading only"):
            reader.count("x")
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            reader._connection._sqlite.execute("DELETE FROM documents")
        reader.close()
        assert len(writer.documents()) == 2


def test_a_reader_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(CatalogMissing, match="ingest"):
        Catalog.open(Home(tmp_path / "none"), read_only=True)
    assert not (tmp_path / "none").exists()


def test_threads_share_one_catalog(tmp_path: Path) -> None:
    failures: list[Exception] = []
    with open_catalog(tmp_path) as catalog:

        def work(name: int) -> None:
            try:
                for turn in range(8):
                    catalog.publish_document(new_document(f"{name}-{turn}"))
                    catalog.count("turns")
                    assert catalog.search_words(1, "words", 3)
                    catalog.vectors(1)
            except (StorageError, sqlite3.Error, AssertionError) as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert len(catalog.documents()) == catalog.counters()["turns"] == 48
        assert catalog.faults() == []


def test_the_catalog_is_light_to_import_and_to_open(tmp_path: Path) -> None:
    open_catalog(tmp_path).close()
    code = (
        "import sys; from pathlib import Path; from storage.catalog import Catalog; from storage.home import Home;"
        "import storage.lock, storage.document_files;"
        f"Catalog.open(Home(Path({str(tmp_path)!r})), read_only=True).documents();"
        "print([m for m in ('torch', 'transformers', 'numba', 'faiss', 'pandas', 'sqlite_utils') if m in sys.modules])"
    )
    root = Path(__file__).resolve().parents[3]
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    assert done.stdout.strip() == "[]"
