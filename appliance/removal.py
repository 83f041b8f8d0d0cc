"""Deleting documents so that no copy stays: rows stop being read, files go, rows go (reliability.md §3)."""

import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from appliance.errors import UnknownDocument
from storage.catalog import Catalog
from storage.document_files import document_files, retire_document_file
from storage.durable import WriteFailed, sync_folder
from storage.errors import FilesStay, UnknownRow
from storage.home import Home
from storage.lock import HomeLock
from storage.scratch import remove_abandoned
from storage.store import STUCK_COUNTER, BlockStore, StoreSettings

# Where `verify --rebuild` makes the new catalog, which takes the old one's place in one step.
REBUILD_FOLDER = "rebuild"


def remove_document(home: Home, catalog: Catalog, store: BlockStore, document_id: str) -> None:
    """Remove a document from every path. Raises UnknownRow; survives a full disk and a kill at any point.

    Raises FilesStay, naming them, where the document is out of use but files of it could not be removed.
    """
    title = catalog.document(document_id).title
    paths = [Path(source.path) for source in catalog.sources_of(document_id)]
    catalog.begin_delete(document_id)
    staying = [path for path in paths if not _remove_upload(home, store, path)]
    staying += finish_removals(home, catalog, store, [document_id])
    if staying:
        more = f" and {len(staying) - 1} more" if len(staying) > 1 else ""
        raise FilesStay(
            f"{title!r} is deleted, but {staying[0]}{more} cannot be removed: check its permissions and remove it"
            " (each start tries again)"
        )


def open_and_remove(root: Path, text: str) -> str:
    """Remove the document named by id, path, file name or title, without loading a model; returns its title.

    Raises UnknownDocument, FilesStay, and StorageError where another process uses the folder.
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


def finish_removals(home: Home, catalog: Catalog, store: BlockStore, document_ids: Sequence[str]) -> list[Path]:
    """Carry out deletions that have begun. Nothing to do is fine.

    Returns the files that could not be removed: `recover` tries those again.
    """
    if not document_ids:
        return []
    staying: list[Path] = []
    gone: list[str] = []
    rows = {row.id: row for row in catalog.deleting_documents()}
    for document_id in document_ids:
        staying += store.retire(catalog.blocks_only_of(document_id))
        try:
            retire_document_file(home, document_id)
            gone.append(document_id)
        except WriteFailed:
            catalog.count(STUCK_COUNTER)
            staying.append(home.documents / f"{document_id}.json")
    # What lies there for inspection may be a copy of what is deleted, and no row says of what; so may blocks that no
    # chunk could be found for.
    for collection_id in {rows[document_id].collection_id for document_id in document_ids if document_id in rows}:
        staying += store.drop_unclaimed(collection_id)
    staying += [file for file in home.quarantine.iterdir() if not store.try_remove(file)]
    sync_folder(home.quarantine)
    catalog.finish_delete(*gone)
    return staying


def recover(home: Home, catalog: Catalog, store: BlockStore) -> None:
    """After a kill: finish deletions, drop drafts, strays and uploads that no document names. At start only.

    What cannot be removed is counted, and tried again at the next start.
    """
    shutil.rmtree(home.root / REBUILD_FOLDER, ignore_errors=True)
    remove_abandoned(home)
    finish_removals(home, catalog, store, [document.id for document in catalog.deleting_documents()])
    store.recover()
    documents = catalog.documents()
    known = {document.id for document in [*documents, *catalog.deleting_documents()]}
    for stray in set(document_files(home)) - known:  # published, but the kill came before its row
        store.try_remove(home.documents / f"{stray}.json")
    sync_folder(home.documents)
    named = {source.path for document in documents for source in catalog.sources_of(document.id)}
    for folder in home.uploads.iterdir():
        for file in list(folder.iterdir()) if folder.is_dir() else []:
            if str(file) not in named:
                _remove_upload(home, store, file)


def _remove_upload(home: Home, store: BlockStore, path: Path) -> bool:
    """A file that came through the page is our copy and goes too; a file of the user's folder is only referenced.

    False where it is ours and could not be removed.
    """
    if not path.is_relative_to(home.uploads):
        return True
    if not store.try_remove(path):
        return False
    with suppress(OSError):  # not empty: another upload shares the folder
        path.parent.rmdir()
    return True
