"""`appliance verify --rebuild`: the catalog made again from `documents/` and the headers of block files.

What the old catalog still tells is taken over: paths, policies, counts, which embedding model a collection was begun
with, and the blocks of other models, whose keys only those models can compute. Blocks that attended to neighbours are
not taken over, because chunks have other numbers now: their files go, and idle time computes them again.
"""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from appliance.engine import Engine, open_engine
from appliance.errors import NoDocuments
from appliance.old_catalog import OldCatalog, OldDocument, read_old_catalog
from appliance.removal import REBUILD_FOLDER
from appliance.retrieval import text_to_embed
from appliance.settings import Settings
from storage.blocks import parse_header
from storage.blocks.header import LARGEST_HEADER_BYTES, LENGTH_BYTES
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.catalog import BlockRow, Catalog, ChunkRow, CollectionRow, NewChunk, NewDocument, set_catalog_aside
from storage.contexts import is_near
from storage.document_files import DocumentFileDamaged, StoredDocument, document_files, read_document_file
from storage.durable import sync_folder
from storage.errors import BlockDamaged, EmbeddingMismatch, StorageError
from storage.home import Home
from storage.lock import HomeLock
from storage.store import row_of


class WouldLose(StorageError):
    """The old catalog is whole and holds what the new one would lack; it was left as it is."""


@dataclass(frozen=True)
class RebuildReport:
    """What was found again; `problems` one line each. `blocks_kept` are files of other models, without a chunk yet."""

    documents: int
    blocks: int
    problems: tuple[str, ...]
    blocks_kept: int = 0

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "problems": list(self.problems)}


def open_and_rebuild(settings: Settings) -> RebuildReport:
    """Make a new catalog beside the old one, then set the old one aside.

    A kill leaves the old catalog, or none (which every command names), never half of the new one. Raises NoDocuments,
    WouldLose, EmbeddingMismatch, StorageError, ModelError; the old catalog stays then.
    """
    home = Home(settings.home)
    draft = Home(home.root / REBUILD_FOLDER)
    with HomeLock(home):
        old = read_old_catalog(home)
        _check_documents(home, old)
        engine = open_engine(settings)
        try:
            shutil.rmtree(draft.root, ignore_errors=True)
            with Catalog.open(draft, rebuild=True) as catalog:
                report = Rebuild(home, catalog, engine, settings.chunk_tokens, old).run()
                catalog.checkpoint()  # everything into the one file that is moved; raises on a full disk
            set_catalog_aside(home)
            draft.catalog_file.rename(home.catalog_file)
            sync_folder(home.root)
            return report
        finally:
            engine.close()
            shutil.rmtree(draft.root, ignore_errors=True)


def _check_documents(home: Home, old: OldCatalog) -> None:
    """Refuse, before anything is loaded, where there is nothing to rebuild from or something would be lost."""
    files = set(document_files(home))
    lost = [identifier for identifier in old.documents if identifier not in files]
    if old.whole and lost:
        raise _would_lose(home, old.documents[lost[0]].title, len(lost))
    if not files:
        anew = "" if old.whole or not home.catalog_file.exists() else f"remove {home.catalog_file} to begin anew, and "
        raise NoDocuments(f"{home.root} holds no stored documents to rebuild from: {anew}ingest some first")


def _would_lose(home: Home, title: str, documents: int) -> WouldLose:
    others = f" and {documents - 1} more" if documents > 1 else ""
    return WouldLose(
        f"the catalog of {home.root} is whole, but the stored file of {title!r}{others} is not: run `appliance verify`,"
        " then ingest or remove the document; nothing was changed"
    )


@dataclass
class Rebuild:
    """Fills an empty catalog. Vectors are computed again; KV blocks are found by their keys, their data is not read."""

    home: Home
    catalog: Catalog
    engine: Engine
    chunk_tokens: int
    """Of collections of which nothing else is known."""
    old: OldCatalog = field(default_factory=OldCatalog)

    def run(self) -> RebuildReport:
        """Take over every document, oldest file first, so that of two with the same path the newest keeps it."""
        problems: list[str] = []
        documents: set[str] = set()
        found: set[str] = set()
        headers = {file.name: file for file in self.home.blocks.glob("*.safetensors")}
        for identifier in self._oldest_first():
            try:
                stored = read_document_file(self.home, identifier)
            except DocumentFileDamaged as error:
                if self.old.whole and identifier in self.old.documents:
                    raise _would_lose(self.home, self.old.documents[identifier].title, 1) from error
                problems.append(str(error))
                continue
            collection = self._collection(stored)
            documents -= set(self._publish(stored, collection))
            documents.add(identifier)
            for chunk in self.catalog.chunks_of(stored.id):
                for name in self._names(stored, chunk, headers):
                    try:
                        row, header_collection = _row(headers[name], collection.id)
                        if header_collection == stored.collection:
                            self.catalog.publish_block(row, [chunk.id])
                            found.add(name)
                    except BlockDamaged as error:
                        problems.append(str(error))
        kept = self._keep_others({name: file for name, file in headers.items() if name not in found})
        for event, amount in self.old.counters.items():
            self.catalog.count(event, amount)
        return RebuildReport(len(documents), len(found), tuple(problems), kept)

    def _oldest_first(self) -> list[str]:
        """Documents by the time of their file. What was being deleted does not come back."""
        files = {name: self.home.documents / f"{name}.json" for name in document_files(self.home)}
        left = [name for name in files if name not in self.old.deleting]
        return sorted(left, key=lambda name: (files[name].lstat().st_mtime_ns, name))

    def _collection(self, stored: StoredDocument) -> CollectionRow:
        """The document's collection, as it was begun. Raises EmbeddingMismatch."""
        embedding, chunk_tokens = stored.embedding_fingerprint, stored.chunk_tokens
        if (known := self.old.collections.get(stored.collection)) is not None:
            embedding, chunk_tokens = known.embedding_fingerprint, known.chunk_tokens
        ours = self.engine.embedding
        if embedding and embedding != ours.fingerprint:
            raise EmbeddingMismatch(
                f"collection {stored.collection!r} was begun with another embedding model ({embedding[:12]}): name it"
                " with --embedding; nothing was changed"
            )
        chunk_tokens = chunk_tokens or self.chunk_tokens
        return self.catalog.ensure_collection(stored.collection, ours.fingerprint, ours.dimensions, chunk_tokens)

    def _publish(self, stored: StoredDocument, collection: CollectionRow) -> list[str]:
        """Publish under every path known; returns the documents that lost their last path to this one."""
        known = self.old.documents.get(stored.id)
        paths = _paths(stored, known)
        kv = stored.kv if known is None else known.kv
        first, _, mtime_ns = paths[0]
        document = _document(stored, collection, self.engine, kv, first, mtime_ns)
        retired = self.catalog.publish_document(document)
        for path, size_bytes, mtime_ns in paths[1:]:
            retired += self.catalog.attach_source(collection.id, path, stored.id, size_bytes, mtime_ns)
        return retired

    def _names(self, stored: StoredDocument, chunk: ChunkRow, headers: dict[str, Path]) -> list[str]:
        """Block files of a chunk: those of this engine by their key, those of others as the old catalog had them."""
        key = self.engine.block_key(stored.collection, self.engine.template.chunk(chunk.title, chunk.text))
        names = [name for name in headers if name.startswith(f"{key}.")]
        if (known := self.old.documents.get(stored.id)) is not None:
            names += [name for name in known.files.get((chunk.start, chunk.end), ()) if name in headers]
        return list(dict.fromkeys(names))

    def _keep_others(self, left: dict[str, Path]) -> int:
        """Note the files of other models that no chunk was found for, so that they are not dropped as strays.

        A whole catalog named every file that was in use: then only those it kept itself are kept on.
        """
        collections = {row.name: row.id for row in self.catalog.collections()}
        kept: dict[int, list[str]] = {}
        for name in [name for name in left if not self.old.whole or name in self.old.unclaimed]:
            try:
                row, collection = _row(left[name], 0)
            except BlockDamaged:
                continue
            ours = row.fingerprint == self.engine.fingerprint or is_near(row.context)
            if not ours and collection in collections:
                kept.setdefault(collections[collection], []).append(name)
        for collection_id, names in kept.items():
            self.catalog.note_unclaimed(collection_id, names)
        return sum(map(len, kept.values()))


def _paths(stored: StoredDocument, known: OldDocument | None) -> Sequence[tuple[str, int, int]]:
    """(path, size in bytes, time in ns) of every path that holds the document, the one it is published under first.

    A time of 0 is unknown: the next ingest compares digests once.
    """
    if known is not None and known.sources:
        return [(source.path, source.size_bytes, source.mtime_ns) for source in known.sources]
    return [(path, stored.size_bytes, 0) for path in stored.source_paths or (stored.title or stored.id,)]


def _document(
    stored: StoredDocument, collection: CollectionRow, engine: Engine, kv: str, path: str, mtime_ns: int
) -> NewDocument:
    texts = [stored.text[start:end] for start, end, _ in stored.chunks]
    windows = engine.embedding.embed_windows([text_to_embed(stored.title, text) for text in texts])
    chunks = tuple(
        NewChunk(ordinal, page, start, end, text, vectors)
        for ordinal, ((start, end, page), text, vectors) in enumerate(zip(stored.chunks, texts, windows, strict=True))
    )
    return NewDocument(
        id=stored.id,
        collection_id=collection.id,
        title=stored.title,
        kind=stored.kind,
        digest=stored.digest,
        size_bytes=stored.size_bytes,
        pages=len(stored.pages),
        kv=kv,
        flags=stored.flags,
        path=path,
        mtime_ns=mtime_ns,
        chunks=chunks,
    )


def _row(file: Path, collection_id: int) -> tuple[BlockRow, str]:
    """A row from a block file's own header, and the collection it names. Raises BlockDamaged."""
    raw = _header_bytes(file)
    header, checksum = parse_header(raw, file.name)
    if header.file_name != file.name:
        raise BlockDamaged(f"{file.name}: belongs to another key; the block is computed again")
    return row_of(header, collection_id, len(raw), checksum), header.collection


def _header_bytes(file: Path) -> bytes:
    """The first bytes of a block file, as many as they say the header has. Raises BlockDamaged."""
    try:
        if not file.is_file() or file.is_symlink():
            raise BlockDamaged(f"{file.name}: is no plain file; the block is computed again")
        with file.open("rb") as stream:
            length = int.from_bytes(stream.read(LENGTH_BYTES), "little") + LENGTH_BYTES
            if length % ALIGNMENT_BYTES or not 0 < length <= min(file.stat().st_size, LARGEST_HEADER_BYTES):
                raise BlockDamaged(f"{file.name}: header length does not match; the block is computed again")
            stream.seek(0)
            return stream.read(length)
    except OSError as error:
        raise BlockDamaged(f"{file.name}: cannot be read ({error.strerror}); the block is computed again") from error
