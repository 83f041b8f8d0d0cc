"""From a file to what the catalog will hold: digest, parsed text, chunks, vectors. Changes nothing."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from appliance.chunking import ChunkSpan, split_into_chunks
from appliance.engine import Engine
from appliance.errors import DocumentRejected
from appliance.parsing import DocumentParser, OpenDocument, ParsedDocument, one_line
from models.embedding import Vectors
from storage.catalog import CollectionRow, NewChunk, NewDocument
from storage.document_files import StoredDocument

_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class FileStamp:
    """What tells an unchanged file cheaply; a file with another stamp is identified by the digest of its content."""

    size_bytes: int
    mtime_ns: int


def stamp_of(path: Path) -> FileStamp:
    """Size and time of a file. Raises DocumentRejected if it cannot be looked at."""
    try:
        return stamp_from(path.stat())
    except OSError as error:
        raise unreadable(path, error) from error


def stamp_from(status: os.stat_result) -> FileStamp:
    """The stamp of a file that was looked at already."""
    return FileStamp(status.st_size, status.st_mtime_ns)


def unreadable(path: Path, error: OSError) -> DocumentRejected:
    """The system's reason as a document's own one-line error."""
    return DocumentRejected(
        f"{one_line(path.name)} cannot be read ({error.strerror or error}): check the path and its rights"
    )


def digest_of(document: OpenDocument) -> str:
    """SHA-256 of the content of an open file, in hexadecimal. Leaves its position alone. Raises OSError.

    Reads no further than the size it was opened with: one that grows is found out by `check_unchanged`.
    """
    digest, read = hashlib.sha256(), 0
    while read < document.status.st_size and (data := os.pread(document.descriptor, _READ_BYTES, read)):
        digest.update(data)
        read += len(data)
    return digest.hexdigest()


def document_id(collection: str, digest: str) -> str:
    """Depends on collection and content alone, so that a run after a kill gives the same catalog."""
    return hashlib.sha256(f"{collection}\0{digest}".encode()).hexdigest()[:32]


def parse_and_chunk(
    document: OpenDocument, digest: str, parser: DocumentParser, engine: Engine, chunk_tokens: int
) -> tuple[ParsedDocument, list[ChunkSpan]]:
    """The text and the chunks of the very content that `digest` names. Raises DocumentRejected, OSError."""
    parsed = parser.parse_open(document)
    document.check_unchanged()
    # A file system's clock may tick every few milliseconds only: what is written within one tick moves no time.
    if digest_of(document) != digest:
        raise DocumentRejected(f"{document.name} changed while it was read: ingest it again")
    spans = split_into_chunks(parsed, engine.template.token_starts(parsed.text), chunk_tokens)
    if not spans:
        raise DocumentRejected(f"{document.name} holds no text: put text into it and ingest it again")
    return parsed, spans


def new_document(
    path: Path,
    stamp: FileStamp,
    digest: str,
    collection: CollectionRow,
    kv: str,
    parsed: ParsedDocument,
    spans: list[ChunkSpan],
    windows: list[Vectors],
) -> NewDocument:
    """The document with the vectors of its chunks' windows, ready to publish."""
    chunks = tuple(
        NewChunk(ordinal, span.page, span.start, span.end, parsed.text[span.start : span.end], vectors)
        for ordinal, (span, vectors) in enumerate(zip(spans, windows, strict=True))
    )
    return NewDocument(
        id=document_id(collection.name, digest),
        collection_id=collection.id,
        title=parsed.title,
        kind=parsed.kind,
        digest=digest,
        size_bytes=stamp.size_bytes,
        pages=len(parsed.pages),
        kv=kv,
        flags=parsed.flags,
        path=str(path),
        mtime_ns=stamp.mtime_ns,
        chunks=chunks,
    )


def stored_document(document: NewDocument, collection: CollectionRow, parsed: ParsedDocument) -> StoredDocument:
    """The same document as the file the catalog can be rebuilt from."""
    return StoredDocument(
        id=document.id,
        collection=collection.name,
        digest=document.digest,
        title=document.title,
        kind=document.kind,
        source_paths=(document.path,),
        size_bytes=document.size_bytes,
        flags=document.flags,
        text=parsed.text,
        pages=tuple((page.number, page.start, page.end) for page in parsed.pages),
        chunks=tuple((chunk.start, chunk.end, chunk.page) for chunk in document.chunks),
        kv=document.kv,
        embedding_fingerprint=collection.embedding_fingerprint,
        chunk_tokens=collection.chunk_tokens,
    )
