"""`ingest --dry-run`: what a run would cost, measured on this computer, before anything is stored."""

import time
from collections.abc import Sequence
from pathlib import Path

from appliance.engine import Engine
from appliance.errors import DocumentRejected
from appliance.ingest.base import DocumentEntry, IngestEstimate
from appliance.ingest.documents import find_files
from appliance.ingest.reading import digest_of, parse_and_chunk
from appliance.parsing import DocumentParser, ParserLimits
from storage.catalog import Catalog

_SAMPLE_TEXT = "The pump was serviced in May and the valve was replaced. " * 12


def estimate(
    paths: Sequence[Path], engine: Engine, catalog: Catalog | None, collection_id: int | None, chunk_tokens: int
) -> IngestEstimate:
    """Parse the files and count; documents that are stored already cost nothing. Raises NothingToIngest."""
    found = find_files(paths)
    limits = ParserLimits()
    entries = [DocumentEntry(str(path), "failed", 0, reason) for path, reason in found.refused]
    entries += [DocumentEntry(str(path), "skipped", 0, reason) for path, reason in found.skipped]
    tokens = chunks = 0
    with DocumentParser(limits) as parser:
        for path in found.accepted:
            try:
                if catalog is not None and collection_id is not None:
                    known = catalog.document_by_digest(collection_id, digest_of(path, limits.file_bytes))
                    if known is not None:
                        entries.append(DocumentEntry(str(path), "unchanged", known.chunks))
                        continue
                parsed, spans = parse_and_chunk(path, parser, engine, chunk_tokens)
            except DocumentRejected as error:
                entries.append(DocumentEntry(str(path), "failed", 0, str(error)))
                continue
            ids = [engine.template.chunk(parsed.title, parsed.text[span.start : span.end]) for span in spans]
            tokens += sum(len(chunk) for chunk in ids)
            chunks += len(spans)
            entries.append(DocumentEntry(str(path), "ready", len(spans)))
    rate = tokens_per_second(engine)
    return IngestEstimate(
        documents=tuple(sorted(entries, key=lambda entry: entry.path)),
        chunks=chunks,
        kv_tokens=tokens,
        kv_bytes=tokens * engine.kv_bytes_per_token,
        hours=tokens / rate / 3600,
        tokens_per_s=rate,
    )


def tokens_per_second(engine: Engine) -> float:
    """The rate at which this engine reads chunks here: the better of two passes over a sample."""
    ids = engine.template.chunk("Sample", _SAMPLE_TEXT)
    best = float("inf")
    for _ in range(2):
        began = time.perf_counter()
        engine.reader.read(ids)
        best = min(best, time.perf_counter() - began)
    return len(ids) / best
