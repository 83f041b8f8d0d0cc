"""A data folder nobody can write to (a mounted copy) can be read, and reading leaves nothing in it."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.catalog import Catalog
from storage.errors import StorageError
from storage.home import Home
from tests.storage.catalog.builders import new_document, open_catalog

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data folder that another user can read: pytest's own folders are closed to them."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made) / "home"


def read_as_nobody(folder: Path) -> str:
    """What the catalog says to a process that may not write there; root may write anywhere, so it steps down."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    output, answer = os.pipe()
    child = os.fork()  # not a new Python, which another user may not be able to start
    if not child:
        try:
            if os.geteuid() == 0:
                os.setuid(NOBODY)
            os.write(answer, _read(folder).encode())
        finally:
            os._exit(0)  # whatever happened, no second run of the tests goes on from here
    os.close(answer)
    with os.fdopen(output) as stream:
        told = stream.read()
    os.waitpid(child, 0)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return told


def _read(folder: Path) -> str:
    try:
        with Catalog.open(Home(folder), read_only=True) as catalog:
            return f"{[document.id for document in catalog.documents()]} {catalog.faults()}"
    except StorageError as error:
        return f"refused: {error}"


def test_a_closed_catalog_is_read_as_it_stands(folder: Path) -> None:
    with open_catalog(folder) as catalog:
        catalog.publish_document(new_document("a"))
    before = sorted(folder.rglob("*"))
    assert read_as_nobody(folder) == "['id-a'] []"
    assert sorted(folder.rglob("*")) == before


def test_a_log_without_its_index_is_refused_in_one_line(folder: Path) -> None:
    """As a copy of a folder in use may be: what the log holds cannot be seen, so nothing is claimed."""
    catalog = open_catalog(folder)
    catalog.publish_document(new_document("a"))
    log = (folder / "catalog.db-wal").read_bytes()
    catalog.close()
    assert log
    (folder / "catalog.db-wal").write_bytes(log)
    told = read_as_nobody(folder)
    assert told.startswith("refused: "), told
    assert "can be written to" in told
    assert "\n" not in told
