"""From a file to what the catalog will hold: digest, parsed text, chunks, vectors. Changes nothing."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from appliance.chunking import ChunkSpan, split_into_chunks
from appliance.engine import Engine
from appliance.errors import DocumentRejected
from appliance.parsing import DocumentParser, ParsedDocument
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
        found = path.stat()
    except OSError as error:
        raise DocumentRejected(
            f"{path.name} cannot be read ({error.strerror}): check the path and its rights"
        ) from error
    return FileStamp(found.st_size, found.st_mtime_ns)


def digest_of(path: Path, limit_bytes: int) -> str:
    """SHA-256 of a file's content, in hexadecimal. Raises DocumentRejected."""
    digest, read = hashlib.sha256(), 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            while data := stream.read(_READ_BYTES):
                digest.update(data)
                read += len(data)
                if read > limit_bytes:
                    raise DocumentRejected(f"{path.name} is larger than {limit_bytes >> 20} MB: split it")
    except OSError as error:
        raise DocumentRejected(f"{path.name} cannot be read ({error.strerror}): check its rights") from error
    return digest.hexdigest()


def document_id(collection: str, digest: str) -> str:
    """Depends on collection and content alone, so that a run after a kill gives the same catalog."""
    return hashlib.sha256(f"{collection}\0{digest}".encode()).hexdigest()[:32]


def parse_and_chunk(
    path: Path, parser: DocumentParser, engine: Engine, chunk_tokens: int
) -> tuple[ParsedDocument, list[ChunkSpan]]:
    """The document's text and its chunks. Raises DocumentRejected."""
    parsed = parser.parse(path)
    spans = split_into_chunks(parsed, engine.template.token_starts(parsed.text), chunk_tokens)
    if not spans:
        raise DocumentRejected(f"{path.name} holds no text: nothing could be asked about it")
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


def stored_document(document: NewDocument, collection: str, parsed: ParsedDocument) -> StoredDocument:
    """The same document as the file the catalog can be rebuilt from."""
    return StoredDocument(
        id=document.id,
        collection=collection,
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
    )
