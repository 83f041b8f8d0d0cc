"""`appliance verify`: read everything that is stored and compare it with what the catalog says."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from storage.catalog import Catalog
from storage.document_files import DocumentFileDamaged, read_document_file
from storage.durable import sync_folder
from storage.errors import BlockDamaged
from storage.home import Home
from storage.lock import HomeLock
from storage.store import BlockStore, StoreSettings


@dataclass(frozen=True)
class VerifyReport:
    """`problems`: one line each. Damaged blocks are out of use when the report comes, and computed again on demand."""

    blocks: int
    blocks_damaged: int
    documents: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "problems": list(self.problems)}


def open_and_verify(root: Path) -> VerifyReport:
    """Check a data folder without loading a model. Raises CatalogDamaged, HomeBusy."""
    home = Home(root)
    with HomeLock(home), Catalog.open(home) as catalog:
        return verify(home, catalog, BlockStore(home, catalog, StoreSettings()))


def verify(
    home: Home, catalog: Catalog, store: BlockStore, progress: Callable[[int, int], None] = lambda _done, _total: None
) -> VerifyReport:
    """Check the catalog, every document file and every block's checksums. What is damaged goes to quarantine."""
    problems = [f"catalog: {fault}" for fault in catalog.faults()]
    documents = catalog.documents()
    for document in documents:
        try:
            stored = read_document_file(home, document.id)
        except DocumentFileDamaged as error:
            problems += [str(error), *_set_aside(home, document.id)]
            continue
        if len(stored.chunks) != document.chunks or stored.digest != document.digest:
            problems.append(f"{document.title}: its document file is not the catalog's: ingest it again")
            problems += _set_aside(home, document.id)
    rows = [row for row in catalog.all_blocks() if row.state == "ready"]
    damaged = 0
    for done, row in enumerate(rows):
        progress(done, len(rows))
        try:
            store.check(row)
        except BlockDamaged as error:
            store.quarantine(row)
            damaged += 1
            problems.append(str(error))
    progress(len(rows), len(rows))
    staying = store.retire(catalog.deleting_blocks())
    problems += [f"{file} is out of use and cannot be removed: check its permissions and remove it" for file in staying]
    return VerifyReport(len(rows), damaged, len(documents), tuple(problems))


def _set_aside(home: Home, document_id: str) -> list[str]:
    """Move a damaged document file to the quarantine: the next ingest sees it missing and makes it again.

    Returns a problem where it cannot be moved.
    """
    file = home.documents / f"{document_id}.json"
    if not file.exists() and not file.is_symlink():
        return []
    if file.is_dir() and not file.is_symlink():
        return [f"{file} is a folder: remove it and ingest the document again"]
    try:
        file.rename(home.quarantine / file.name)
    except OSError as error:
        return [f"{file} cannot be set aside ({error.strerror}): remove it and ingest the document again"]
    sync_folder(home.documents)
    return []
