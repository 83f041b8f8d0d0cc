"""The list of documents, as the page and `appliance list` show it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.errors import UnknownCollection
from appliance.status import last_engine
from storage.catalog import Catalog, CatalogMissing, DocumentRow
from storage.home import Home


@dataclass(frozen=True)
class DocumentSummary:
    """One row. `chunks_with_kv` of `chunks` have a KV block, `kv_bytes` in all; `pages` is 0 where there are none."""

    id: str
    title: str
    path: str
    collection: str
    kind: str
    pages: int
    chunks: int
    chunks_with_kv: int
    kv_bytes: int
    size_bytes: int
    flags: tuple[str, ...] = ()
    """Words of the parser about the text, such as `hidden_text`."""

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "flags": list(self.flags)}


def summarise(
    catalog: Catalog, document: DocumentRow, collection: str, fingerprint: str | None = None
) -> DocumentSummary:
    """A document's row, with the first of its paths; KV of the model with this fingerprint, of any where None."""
    sources = catalog.sources_of(document.id)
    kv = catalog.document_kv(document.id, fingerprint)
    return DocumentSummary(
        id=document.id,
        title=document.title,
        path=sources[0].path if sources else "",
        collection=collection,
        kind=document.kind,
        pages=document.pages,
        chunks=document.chunks,
        chunks_with_kv=kv.blocks,
        kv_bytes=kv.bytes,
        size_bytes=document.size_bytes,
        flags=document.flags,
    )


def list_summaries(root: Path, collection: str | None, model: str | None = None) -> list[DocumentSummary]:
    """The documents of a data folder, without loading a model. Raises UnknownCollection.

    KV is that of `model` (a setting) where the last process that computed any used it, else that of any model.
    """
    home = Home(root)
    fingerprint = None if model is None else last_engine(home, model).get("fingerprint")
    try:
        catalog = Catalog.open(home, read_only=True)
    except CatalogMissing:
        return []
    with catalog:
        names = {row.id: row.name for row in catalog.collections()}
        if collection is not None and collection not in names.values():
            raise UnknownCollection(f"collection {collection!r} is unknown: choose one of {', '.join(names.values())}")
        chosen = [number for number, name in names.items() if collection in (None, name)]
        documents = [document for number in chosen for document in catalog.documents(number)]
        return [summarise(catalog, document, names[document.collection_id], fingerprint) for document in documents]
