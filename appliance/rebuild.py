"""`appliance verify --rebuild`: the catalog made again from `documents/` and the headers of block files."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from appliance.engine import Engine, open_engine
from appliance.removal import REBUILD_FOLDER
from appliance.retrieval import text_to_embed
from appliance.settings import Settings
from storage.blocks import parse_header
from storage.blocks.header import LARGEST_HEADER_BYTES, LENGTH_BYTES
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.catalog import BlockRow, Catalog, CollectionRow, NewChunk, NewDocument, set_catalog_aside
from storage.document_files import DocumentFileDamaged, StoredDocument, document_files, read_document_file
from storage.durable import sync_folder
from storage.errors import BlockDamaged
from storage.home import Home
from storage.lock import HomeLock


@dataclass(frozen=True)
class RebuildReport:
    """What was found again; `problems` one line each."""

    documents: int
    blocks: int
    problems: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "problems": list(self.problems)}


def open_and_rebuild(settings: Settings) -> RebuildReport:
    """Make a new catalog beside the old one, then set the old one aside. Raises StorageError, ModelError.

    A kill leaves the old catalog, or none (which every command names), never half of the new one.
    """
    home = Home(settings.home)
    draft = Home(home.root / REBUILD_FOLDER)
    with HomeLock(home):
        engine = open_engine(settings)
        try:
            shutil.rmtree(draft.root, ignore_errors=True)
            with Catalog.open(draft, rebuild=True) as catalog:
                report = rebuild(home, catalog, engine, settings.chunk_tokens)
                catalog.checkpoint()  # everything into the one file that is moved; raises on a full disk
            set_catalog_aside(home)
            draft.catalog_file.rename(home.catalog_file)
            sync_folder(home.root)
            return report
        finally:
            engine.close()
            shutil.rmtree(draft.root, ignore_errors=True)


def rebuild(home: Home, catalog: Catalog, engine: Engine, chunk_tokens: int) -> RebuildReport:
    """Fill an empty catalog. Vectors are computed again; KV blocks are found by their keys, their data is not read."""
    problems: list[str] = []
    documents = 0
    found: set[str] = set()
    headers = {file.name: file for file in home.blocks.glob("*.safetensors")}
    for identifier in document_files(home):
        try:
            stored = read_document_file(home, identifier)
        except DocumentFileDamaged as error:
            problems.append(str(error))
            continue
        collection = catalog.ensure_collection(
            stored.collection, engine.embedding.fingerprint, engine.embedding.dimensions, chunk_tokens
        )
        catalog.publish_document(_document(stored, collection, engine))
        documents += 1
        for chunk in catalog.chunks_of(stored.id):
            key = engine.block_key(stored.collection, engine.template.chunk(chunk.title, chunk.text))
            for name in [name for name in headers if name.startswith(f"{key}.")]:
                try:
                    catalog.publish_block(_row(headers[name], collection.id), [chunk.id])
                    found.add(name)
                except BlockDamaged as error:
                    problems.append(str(error))
    return RebuildReport(documents, len(found), tuple(problems))


def _document(stored: StoredDocument, collection: CollectionRow, engine: Engine) -> NewDocument:
    texts = [stored.text[start:end] for start, end, _ in stored.chunks]
    windows = engine.embedding.embed_windows([text_to_embed(stored.title, text) for text in texts])
    chunks = tuple(
        NewChunk(ordinal, page, start, end, text, vectors)
        for ordinal, ((start, end, page), text, vectors) in enumerate(zip(stored.chunks, texts, windows, strict=True))
    )
    path = Path(stored.source_paths[0])
    return NewDocument(
        id=stored.id,
        collection_id=collection.id,
        title=stored.title,
        kind=stored.kind,
        digest=stored.digest,
        size_bytes=stored.size_bytes,
        pages=len(stored.pages),
        kv=stored.kv,
        flags=stored.flags,
        path=str(path),
        mtime_ns=0,  # unknown: the next ingest compares digests once
        chunks=chunks,
    )


def _row(file: Path, collection_id: int) -> BlockRow:
    """A row from a block file's own header. Raises BlockDamaged."""
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(LENGTH_BYTES), "little") + LENGTH_BYTES
        if length % ALIGNMENT_BYTES or not 0 < length <= min(file.stat().st_size, LARGEST_HEADER_BYTES):
            raise BlockDamaged(f"{file.name}: header length does not match; the block is computed again")
        stream.seek(0)
        header, checksum = parse_header(stream.read(length), file.name)
    if header.file_name != file.name:
        raise BlockDamaged(f"{file.name}: belongs to another key; the block is computed again")
    return BlockRow(
        key=header.key,
        collection_id=collection_id,
        fingerprint=header.fingerprint,
        kind=header.kind,
        context=header.context,
        codec=header.codec,
        generation=header.generation,
        tokens=header.tokens,
        size_bytes=length + header.layout.data_bytes,
        header_bytes=length,
        header_checksum=checksum,
        file=header.file_name,
    )
