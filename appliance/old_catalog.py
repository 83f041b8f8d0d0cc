"""What a rebuild takes over from the catalog it replaces, where that one can still be read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from storage.catalog import Catalog, CollectionRow, SourceRow
from storage.errors import CatalogDamaged
from storage.home import Home


@dataclass(frozen=True)
class OldDocument:
    """A ready document. `files` are the block files of every model, by the chunk's span."""

    title: str
    kv: str
    sources: tuple[SourceRow, ...]
    files: Mapping[tuple[int, int], tuple[str, ...]]


@dataclass(frozen=True)
class OldCatalog:
    """`whole`: SQLite's full check found nothing wrong, so that what the catalog does not say is not so.

    `unclaimed` are block files that an earlier rebuild kept; `deleting` documents whose deletion has begun.
    """

    whole: bool = False
    collections: Mapping[str, CollectionRow] = field(default_factory=dict)
    documents: Mapping[str, OldDocument] = field(default_factory=dict)
    deleting: frozenset[str] = frozenset()
    unclaimed: tuple[str, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)


def read_old_catalog(home: Home) -> OldCatalog:
    """The catalog of `home`, or an empty one where there is none or it is damaged. Only under the HomeLock.

    Raises the other errors of a catalog: busy, full disk, written by a newer version.
    """
    if not home.catalog_file.exists() or not home.catalog_file.stat().st_size:
        return OldCatalog()
    try:
        with Catalog.open(home, rebuild=True) as catalog:
            return OldCatalog(
                whole=not catalog.faults(),
                collections={row.name: row for row in catalog.collections()},
                documents={row.id: _document(catalog, row.id, row.title, row.kv) for row in catalog.documents()},
                deleting=frozenset(row.id for row in catalog.deleting_documents()),
                unclaimed=tuple(catalog.unclaimed()),
                counters=catalog.counters(),
            )
    except CatalogDamaged:
        return OldCatalog()


def _document(catalog: Catalog, document_id: str, title: str, kv: str) -> OldDocument:
    files = catalog.block_files_of(document_id)
    spans = {(chunk.start, chunk.end): tuple(files.get(chunk.id, ())) for chunk in catalog.chunks_of(document_id)}
    return OldDocument(title, kv, tuple(catalog.sources_of(document_id)), spans)
