"""The first half of ingesting: files become documents that can be searched (DESIGN.md §4)."""

import time
from collections.abc import Sequence
from pathlib import Path

from appliance.chunking import ChunkSpan
from appliance.engine import Engine
from appliance.errors import DocumentRejected, NothingToIngest
from appliance.ingest.base import DocumentEntry, IngestProgress, ProgressListener, notes_of
from appliance.ingest.reading import (
    digest_of,
    new_document,
    parse_and_chunk,
    stamp_from,
    stamp_of,
    stored_document,
    unreadable,
)
from appliance.ingest.vanished import emptied_folders, vanished_sources
from appliance.parsing import (
    DocumentParser,
    FoundFiles,
    OpenDocument,
    ParsedDocument,
    ParserLimits,
    find_documents,
    one_line,
    open_document,
)
from appliance.removal import finish_removals
from appliance.retrieval import text_to_embed
from appliance.turns import Turns
from models.embedding import Vectors
from storage.catalog import Catalog, CollectionRow, DocumentRow
from storage.document_files import document_files, publish_document_file
from storage.errors import DiskFull, StorageError
from storage.home import Home
from storage.store import BlockStore

_EMBEDDED_A_TURN = 16


class DocumentIngest:
    """Reads files into one collection. A bad file costs itself; a full disk ends the run with what is durable kept."""

    def __init__(
        self, home: Home, catalog: Catalog, store: BlockStore, engine: Engine, turns: Turns, keeps_kv: bool = False
    ) -> None:
        """With `keeps_kv` a document that is there already keeps what was asked for its KV."""
        self._keeps_kv = keeps_kv
        self._home = home
        self._catalog = catalog
        self._store = store
        self._engine = engine
        self._turns = turns
        self._limits = ParserLimits()
        self.embedding_seconds = 0.0
        self.error: str | None = None
        self._stored = set(document_files(home))  # a document whose own file is lost is read again

    def run(
        self, paths: Sequence[Path], collection: CollectionRow, kv: str, progress: ProgressListener
    ) -> list[DocumentEntry]:
        """One entry a file, in order of path; on a full disk `error` is set. Raises NothingToIngest."""
        found = find_documents(paths)
        entries = left_out(found)
        with DocumentParser(self._limits) as parser:
            for done, path in enumerate(found.accepted):
                progress(IngestProgress("parse", path.name, done, len(found.accepted), 0, 0, 0.0, None))
                if self.error is None:
                    entries.append(self._one(path, collection, kv, parser))
                else:
                    line = f"{path.name} was not read, the disk is full: free some space and ingest it again"
                    entries.append(DocumentEntry(str(path), "failed", 0, line))
        # Last, so that a file that was only moved has kept its document.
        try:
            removed = self._forget_vanished(paths, found, collection)
        except DiskFull as full:
            self.error, removed = str(full), []
        kept = emptied_folders(self._catalog, collection.id, paths, found)
        if not found.accepted and not found.refused and not removed:
            raise NothingToIngest("; ".join(kept.values()) or nothing_in(paths))
        entries += [DocumentEntry(str(folder), "failed", 0, line) for folder, line in kept.items()]
        return sorted([*entries, *removed], key=lambda entry: entry.path)

    def _one(self, path: Path, collection: CollectionRow, kv: str, parser: DocumentParser) -> DocumentEntry:
        try:
            return self._read(path, collection, kv, parser)
        except DiskFull as full:
            self.error = str(full)
            return DocumentEntry(str(path), "failed", 0, str(full))
        except (DocumentRejected, StorageError) as error:
            return DocumentEntry(str(path), "failed", 0, str(error))
        except OSError as error:
            return DocumentEntry(str(path), "failed", 0, str(unreadable(path, error)))

    def _read(self, path: Path, collection: CollectionRow, kv: str, parser: DocumentParser) -> DocumentEntry:
        stamp = stamp_of(path)
        known = self._catalog.source(collection.id, str(path))
        if known is not None and (known.size_bytes, known.mtime_ns) != (stamp.size_bytes, stamp.mtime_ns):
            known = None
        if known is not None and known.document_id in self._stored:
            return self._unchanged(path, self._catalog.document(known.document_id), kv)
        # Hashed and parsed through one descriptor, whatever becomes of the path meanwhile.
        with open_document(path, self._limits) as opened:
            return self._read_open(path, opened, collection, kv, parser)

    def _read_open(
        self, path: Path, opened: OpenDocument, collection: CollectionRow, kv: str, parser: DocumentParser
    ) -> DocumentEntry:
        stamp, digest = stamp_from(opened.status), digest_of(opened)
        same = self._catalog.document_by_digest(collection.id, digest)
        if same is not None and same.id in self._stored:
            opened.check_unchanged()
            replaced = self._catalog.attach_source(collection.id, str(path), same.id, stamp.size_bytes, stamp.mtime_ns)
            finish_removals(self._home, self._catalog, self._store, replaced)
            return self._unchanged(path, same, kv)
        parsed, spans = parse_and_chunk(opened, digest, parser, self._engine, collection.chunk_tokens)
        windows = self._embed(parsed, spans)
        document = new_document(path, stamp, digest, collection, kv, parsed, spans, windows)
        publish_document_file(self._home, stored_document(document, collection, parsed))
        self._stored.add(document.id)
        replaced = self._catalog.publish_document(document)
        finish_removals(self._home, self._catalog, self._store, replaced)
        return DocumentEntry(str(path), "ready", len(document.chunks), None, notes_of(document.flags), document.id)

    def _embed(self, parsed: ParsedDocument, spans: Sequence[ChunkSpan]) -> list[Vectors]:
        """The windows' vectors of every chunk, a few chunks a turn, so that a question never waits for a long file."""
        texts = [text_to_embed(parsed.title, parsed.text[span.start : span.end]) for span in spans]
        windows: list[Vectors] = []
        for first in range(0, len(texts), _EMBEDDED_A_TURN):
            with self._turns.background():
                began = time.perf_counter()
                windows += self._engine.embedding.embed_windows(texts[first : first + _EMBEDDED_A_TURN])
                self.embedding_seconds += time.perf_counter() - began
        return windows

    def _unchanged(self, path: Path, document: DocumentRow, kv: str) -> DocumentEntry:
        if document.kv != kv and not self._keeps_kv:
            self._catalog.set_kv(document.id, kv)  # what the last ingest asked for is what is done
        return DocumentEntry(str(path), "unchanged", document.chunks, None, notes_of(document.flags), document.id)

    def _forget_vanished(
        self, paths: Sequence[Path], found: FoundFiles, collection: CollectionRow
    ) -> list[DocumentEntry]:
        """A file that was read from one of these folders and is gone takes its document with it."""
        entries, removed = [], []
        for source, document in vanished_sources(self._catalog, collection.id, paths, found):
            removed += self._catalog.detach_source(collection.id, source.path)
            entries.append(DocumentEntry(source.path, "removed", document.chunks))
        finish_removals(self._home, self._catalog, self._store, removed)
        return entries


def left_out(found: FoundFiles) -> list[DocumentEntry]:
    """The entries of the files that are not read."""
    entries = [DocumentEntry(str(path), "failed", 0, reason) for path, reason in found.refused]
    return entries + [DocumentEntry(str(path), "skipped", 0, reason) for path, reason in found.skipped]


def nothing_in(paths: Sequence[Path]) -> str:
    """The line for paths without any file to read."""
    shown = ", ".join(one_line(str(path), 1000) for path in paths)
    return f"{shown}: no document in it: put txt, md, html, pdf or docx files there"
