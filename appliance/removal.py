"""Deleting documents so that no copy stays: rows stop being read, files go, rows go (reliability.md §3)."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from appliance.errors import UnknownDocument
from storage.catalog import Catalog
from storage.document_files import document_files, retire_document_file
from storage.durable import retire_file
from storage.errors import UnknownRow
from storage.home import Home
from storage.lock import HomeLock
from storage.store import BlockStore, StoreSettings

# Where `verify --rebuild` makes the new catalog, which takes the old one's place in one step.
REBUILD_FOLDER = "rebuild"


def remove_document(home: Home, catalog: Catalog, store: BlockStore, document_id: str) -> None:
    """Remove a document from every path. Raises UnknownRow; survives a full disk and a kill at any point."""
    paths = [Path(source.path) for source in catalog.sources_of(document_id)]
    catalog.begin_delete(document_id)
    for path in paths:
        _remove_upload(home, path)
    finish_removals(home, catalog, store, [document_id])


def open_and_remove(root: Path, text: str) -> str:
    """Remove the document named by id, path, file name or title, without loading a model; returns its title.

    Raises UnknownDocument, and StorageError where another process uses the folder.
    """
    home = Home(root)
    with HomeLock(home), Catalog.open(home) as catalog:
        store = BlockStore(home, catalog, StoreSettings())
        recover(home, catalog, store)
        try:
            document = catalog.find_document(text)
        except UnknownRow as error:
            raise UnknownDocument(str(error)) from error
        remove_document(home, catalog, store, document.id)
        return document.title


def finish_removals(home: Home, catalog: Catalog, store: BlockStore, document_ids: Sequence[str]) -> None:
    """Carry out deletions that have begun. Nothing to do is fine."""
    if not document_ids:
        return
    for document_id in document_ids:
        store.retire(catalog.blocks_only_of(document_id))
        retire_document_file(home, document_id)
    # What lies there for inspection may be a copy of what is deleted, and no row says of what.
    for file in home.quarantine.iterdir():
        retire_file(file)
    catalog.finish_delete(*document_ids)


def recover(home: Home, catalog: Catalog, store: BlockStore) -> None:
    """After a kill: finish deletions, drop drafts, strays and uploads that no document names. At start only."""
    shutil.rmtree(home.root / REBUILD_FOLDER, ignore_errors=True)
    finish_removals(home, catalog, store, [document.id for document in catalog.deleting_documents()])
    store.recover()
    documents = catalog.documents()
    for stray in set(document_files(home)) - {document.id for document in documents}:
        retire_document_file(home, stray)  # published, but the kill came before its row
    named = {source.path for document in documents for source in catalog.sources_of(document.id)}
    for folder in home.uploads.iterdir():
        for file in list(folder.iterdir()) if folder.is_dir() else []:
            if str(file) not in named:
                _remove_upload(home, file)


def _remove_upload(home: Home, path: Path) -> None:
    """A file that came through the page is our copy and goes too; a file of the user's folder is only referenced."""
    if path.is_relative_to(home.uploads):
        path.unlink(missing_ok=True)
        with suppress(OSError):  # not empty: another upload shares the folder
            path.parent.rmdir()
