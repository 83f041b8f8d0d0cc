"""Parsed documents on disk, `documents/<id>.json`: what the catalog is rebuilt from, and what an exact read needs."""

import json
import os
import re
from dataclasses import asdict, dataclass
from typing import Any

from storage.durable import SYSTEM, FileOperations, publish_bytes, retire_file
from storage.errors import StorageError
from storage.home import Home

FORMAT_VERSION = 1
MAX_FILE_BYTES = 512 * 1024 * 1024
_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_KV_POLICIES = ("now", "idle", "off")


class DocumentFileDamaged(StorageError):
    """A stored document is missing, torn, or not what this application writes."""


@dataclass(frozen=True)
class StoredDocument:
    """One parsed document. Offsets are in characters of `text`; `page` of a chunk is None where there are no pages."""

    id: str
    collection: str
    digest: str
    title: str
    kind: str
    source_paths: tuple[str, ...]
    size_bytes: int
    flags: tuple[str, ...]
    text: str
    pages: tuple[tuple[int, int, int], ...]
    """(number, start, end) of each page, in order."""
    chunks: tuple[tuple[int, int, int | None], ...]
    """(start, end, page) of each chunk, in order."""
    kv: str
    format_version: int = FORMAT_VERSION
    embedding_fingerprint: str = ""
    """The embedding model its collection was begun with; empty in files of before this field."""
    chunk_tokens: int = 0
    """The chunk size of its collection; 0 in files of before this field."""


_ADDED_LATER = {"embedding_fingerprint": "", "chunk_tokens": 0}


def publish_document_file(home: Home, stored: StoredDocument, *, operations: FileOperations = SYSTEM) -> None:
    """Write the document durably, in place of an older one. Raises DiskFull, WriteFailed, DocumentFileDamaged."""
    file = f"{_checked_id(stored.id)}.json"
    _check(stored, file)
    try:
        content = json.dumps(asdict(stored), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        raise DocumentFileDamaged(f"{stored.title!a} or its path is not valid Unicode: rename it") from error
    publish_bytes(home.documents / file, [content], home.temporary, operations=operations)


def read_document_file(home: Home, document_id: str) -> StoredDocument:
    """Read and check a document. Raises DocumentFileDamaged, naming the file and the field."""
    file = home.documents / f"{_checked_id(document_id)}.json"
    try:
        with open(file, "rb", opener=_open_plain) as handle:
            if os.fstat(handle.fileno()).st_size > MAX_FILE_BYTES:
                raise DocumentFileDamaged(f"{file} is larger than {MAX_FILE_BYTES} bytes: ingest the document again")
            found = json.loads(handle.read())
    except OSError as error:
        raise DocumentFileDamaged(f"{file} cannot be read ({error.strerror}): ingest the document again") from error
    except (ValueError, RecursionError) as error:
        raise DocumentFileDamaged(f"{file} is not a stored document: ingest the document again") from error
    stored = _decoded(found, file.name)
    if stored.id != document_id:
        raise _damaged(file.name, "id")
    _check(stored, file.name)
    return stored


def retire_document_file(home: Home, document_id: str, *, operations: FileOperations = SYSTEM) -> None:
    """Remove the document's file durably; one that is gone already is fine."""
    retire_file(home.documents / f"{_checked_id(document_id)}.json", operations=operations)


def document_files(home: Home) -> list[str]:
    """The ids of all stored documents, in order; other files in the folder are passed over."""
    return sorted(file.stem for file in home.documents.glob("*.json") if _ID.fullmatch(file.stem))


def _open_plain(file: str, flags: int) -> int:
    """Follow no link and wait for no pipe that someone put in the file's place."""
    return os.open(file, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _checked_id(document_id: str) -> str:
    if not _ID.fullmatch(document_id):
        raise DocumentFileDamaged(f"{document_id[:64]!r} is no document id: letters, digits, '-' and '_' only")
    return document_id


def _decoded(found: Any, file: str) -> StoredDocument:
    """The JSON value as a document; names the first field that is missing or of another type."""
    names = tuple(StoredDocument.__dataclass_fields__)
    if not isinstance(found, dict):
        raise DocumentFileDamaged(f"{file} is not a stored document: ingest the document again")
    version = found.get("format_version")
    if version != FORMAT_VERSION:
        raise DocumentFileDamaged(f"{file} has the format {version!r:.20}: update this application, or ingest again")
    found = {**_ADDED_LATER, **found}
    for name in names:
        if name not in found:
            raise _damaged(file, name)
    for name in ("source_paths", "flags"):
        found[name] = _tuple(found[name], file, name)
    for name in ("pages", "chunks"):
        found[name] = tuple(_tuple(entry, file, name) for entry in _tuple(found[name], file, name))
    return StoredDocument(**{name: found[name] for name in names})


def _tuple(value: Any, file: str, name: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _damaged(file, name)
    return tuple(value)


def _check(stored: StoredDocument, file: str) -> None:
    """Types and bounds of every field, before anything believes them (`bool` is no number here)."""
    for name in ("collection", "digest", "title", "kind", "text", "kv", "embedding_fingerprint"):
        if type(getattr(stored, name)) is not str:
            raise _damaged(file, name)
    for name in ("source_paths", "flags"):
        if any(type(entry) is not str for entry in getattr(stored, name)):
            raise _damaged(file, name)
    if stored.kv not in _KV_POLICIES:
        raise _damaged(file, "kv")
    if type(stored.size_bytes) is not int or not 0 <= stored.size_bytes < 2**63:
        raise _damaged(file, "size_bytes")
    if type(stored.chunk_tokens) is not int or not 0 <= stored.chunk_tokens < 2**31:
        raise _damaged(file, "chunk_tokens")
    length = len(stored.text)
    for page in stored.pages:
        if len(page) != 3 or not _is_span(page[1], page[2], length) or not _is_page(page[0]):
            raise _damaged(file, "pages")
    for chunk in stored.chunks:
        if len(chunk) != 3 or not _is_span(chunk[0], chunk[1], length) or chunk[0] == chunk[1]:
            raise _damaged(file, "chunks")
        if chunk[2] is not None and not _is_page(chunk[2]):
            raise _damaged(file, "chunks")


def _is_span(start: Any, end: Any, length: int) -> bool:
    return type(start) is int and type(end) is int and 0 <= start <= end <= length


def _is_page(number: Any) -> bool:
    return type(number) is int and 1 <= number < 2**31


def _damaged(file: str, name: str) -> DocumentFileDamaged:
    return DocumentFileDamaged(f"{file} is damaged (field {name!r}): ingest the document again")
