"""`ingest --dry-run`: what a run would cost, measured on this computer, before anything is stored."""

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from appliance.block_source import wanted_blocks
from appliance.collection_names import check_collection_name
from appliance.engine import Engine, open_engine
from appliance.errors import DocumentRejected, NothingToIngest
from appliance.ingest.base import DocumentEntry, IngestEstimate, notes_of
from appliance.ingest.documents import left_out, nothing_in
from appliance.ingest.kv import lacking_chunks
from appliance.ingest.reading import digest_of, parse_and_chunk, unreadable
from appliance.ingest.vanished import emptied_folders, vanished_sources
from appliance.parsing import DocumentParser, FoundFiles, OpenDocument, ParserLimits, find_documents, open_document
from appliance.settings import Settings
from storage.catalog import Catalog, CatalogMissing, ChunkRow, CollectionRow
from storage.document_files import document_files
from storage.errors import UnknownRow
from storage.home import Home

_SAMPLE_TEXT = "The pump was serviced in May and the valve was replaced. " * 12


def open_and_estimate(settings: Settings, paths: Sequence[Path], collection: str, kv: str) -> IngestEstimate:
    """Estimate over a data folder that is only read: it may be in use by another process, or not be there yet.

    Raises NothingToIngest, ApplianceError, StorageError, ModelError.
    """
    check_collection_name(collection)
    try:
        catalog = Catalog.open(Home(settings.home), read_only=True)
    except CatalogMissing:
        catalog = None
    try:
        engine = open_engine(settings, keep=False)
        try:
            return estimate(paths, engine, catalog, settings, collection, kv)
        finally:
            engine.close()
    finally:
        if catalog is not None:
            catalog.close()


def estimate(
    paths: Sequence[Path], engine: Engine, catalog: Catalog | None, settings: Settings, collection: str, kv: str
) -> IngestEstimate:
    """Parse the files and count what a run would compute. Raises NothingToIngest."""
    found = find_documents(paths)
    run = _DryRun(engine, catalog, settings, collection, kv)
    gone = run.vanished(paths, found)
    if not found.accepted and not found.refused and not gone:
        raise NothingToIngest(nothing_in(paths))
    with DocumentParser(run.limits) as parser:
        entries = gone + [run.file(path, parser) for path in found.accepted]
    run.add_waiting()
    rate = tokens_per_second(engine)
    return IngestEstimate(
        documents=tuple(sorted([*left_out(found), *entries], key=lambda entry: entry.path)),
        chunks=sum(entry.chunks for entry in entries if entry.state == "ready"),
        kv_tokens=run.kv_tokens,
        kv_bytes=run.kv_tokens * engine.kv_bytes_per_token,
        hours=run.kv_tokens / rate / 3600,
        tokens_per_s=rate,
    )


class _DryRun:
    """One run's counting. Blocks are told apart by their keys, so that the same text is counted once."""

    def __init__(self, engine: Engine, catalog: Catalog | None, settings: Settings, collection: str, kv: str) -> None:
        self.limits = ParserLimits()
        self._engine = engine
        self._catalog = catalog
        self._collection = collection
        self._row = _collection_row(catalog, collection)
        self._chunk_tokens = self._row.chunk_tokens if self._row is not None else settings.chunk_tokens
        self._kv = kv
        self._stored = set(document_files(Home(settings.home)))
        self._digests: dict[str, int] = {}
        self._documents: set[str] = set()
        self._blocks: set[str] = set()
        self.kv_tokens = 0

    def file(self, path: Path, parser: DocumentParser) -> DocumentEntry:
        """The entry of one file, as a run would give it."""
        try:
            with open_document(path, self.limits) as opened:
                return self._open_file(path, opened, parser)
        except DocumentRejected as error:
            return DocumentEntry(str(path), "failed", 0, str(error))
        except OSError as error:
            return DocumentEntry(str(path), "failed", 0, str(unreadable(path, error)))

    def vanished(self, paths: Sequence[Path], found: FoundFiles) -> list[DocumentEntry]:
        """The entries of what a run would remove; a folder that is empty now loses nothing, and is told of."""
        if self._catalog is None or self._row is None:
            return []
        emptied = emptied_folders(self._catalog, self._row.id, paths, found)
        if emptied and not found.accepted and not found.refused:
            raise NothingToIngest("; ".join(emptied.values()))
        entries = [DocumentEntry(str(folder), "failed", 0, line) for folder, line in emptied.items()]
        for source, document in vanished_sources(self._catalog, self._row.id, paths, found):
            self._documents.add(document.id)
            entries.append(DocumentEntry(source.path, "removed", document.chunks))
        return entries

    def add_waiting(self) -> None:
        """A run with KV now also computes what earlier runs with KV now left undone."""
        if self._kv == "now" and self._catalog is not None and self._row is not None:
            waiting = lacking_chunks(self._catalog, self._engine, ("now",), self._row.id)
            self._add_chunks(chunk for chunk in waiting if chunk.document_id not in self._documents)

    def _open_file(self, path: Path, opened: OpenDocument, parser: DocumentParser) -> DocumentEntry:
        digest = digest_of(opened)
        if digest in self._digests:
            return DocumentEntry(str(path), "unchanged", self._digests[digest])
        if self._catalog is not None and self._row is not None:
            known = self._catalog.document_by_digest(self._row.id, digest)
            if known is not None and known.id in self._stored:
                self._digests[digest] = known.chunks
                self._documents.add(known.id)
                self._add_chunks(self._catalog.chunks_of(known.id))
                return DocumentEntry(str(path), "unchanged", known.chunks, None, notes_of(known.flags))
        parsed, spans = parse_and_chunk(opened, digest, parser, self._engine, self._chunk_tokens)
        self._digests[digest] = len(spans)
        for span in spans:
            ids = self._engine.template.chunk(parsed.title, parsed.text[span.start : span.end])
            key = self._engine.block_key(self._collection, ids)
            if self._catalog is None or self._catalog.block(key) is None:
                self._add(key, ids)
        return DocumentEntry(str(path), "ready", len(spans), None, notes_of(parsed.flags))

    def _add_chunks(self, chunks: Iterable[ChunkRow]) -> None:
        if self._catalog is not None:
            for wanted in wanted_blocks(self._engine, self._catalog, self._collection, list(chunks)):
                if wanted.row is None:
                    self._add(wanted.key, wanted.token_ids)

    def _add(self, key: str, token_ids: np.ndarray) -> None:
        """A block to compute, unless nothing is to be stored or it is counted already."""
        if self._kv != "off" and key not in self._blocks:
            self._blocks.add(key)
            self.kv_tokens += len(token_ids)


def _collection_row(catalog: Catalog | None, collection: str) -> CollectionRow | None:
    if catalog is None:
        return None
    try:
        return catalog.collection(collection)
    except UnknownRow:
        return None


def tokens_per_second(engine: Engine) -> float:
    """The rate at which this engine reads chunks here: the better of two passes over a sample."""
    ids = engine.template.chunk("Sample", _SAMPLE_TEXT)
    best = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        engine.reader.read(ids)
        best = min(best, time.perf_counter() - began)
    return len(ids) / best
