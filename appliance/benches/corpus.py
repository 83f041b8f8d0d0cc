"""A question set put into a real catalog in a temporary data folder, the way ingest would."""

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from appliance.benches.base import Progress
from appliance.benches.datasets import BenchDocument, QuestionSet
from appliance.chunking import ChunkSpan, split_into_chunks
from appliance.parsing import ParsedDocument
from appliance.retrieval import text_to_embed
from models.embedding import Embedding
from storage.catalog import Catalog, NewChunk, NewDocument

TokenStarts = Callable[[str], Sequence[int]]
"""The offsets at which the tokens of a text begin, ascending, as `appliance.chunking` wants them."""

_DOCUMENTS_AT_ONCE = 64


@dataclass(frozen=True)
class Corpus:
    """A published question set: which document each chunk belongs to, and where in its text it stands."""

    collection_id: int
    documents: dict[int, int]
    """Chunk id to the index of its document in the set."""
    spans: dict[int, tuple[int, int]]
    """Chunk id to its characters `[start, end)` in the document's text."""
    windows: int
    embed_s: float


def publish_corpus(
    catalog: Catalog,
    embedding: Embedding,
    questions: QuestionSet,
    token_starts: TokenStarts | None,
    chunk_tokens: int,
    progress: Progress,
) -> Corpus:
    """Cut, embed and publish every document. Without `token_starts` each document is one chunk.

    Raises what the catalog raises.
    """
    collection = catalog.ensure_collection(questions.name, embedding.fingerprint, embedding.dimensions, chunk_tokens)
    owners: dict[int, int] = {}
    places: dict[int, tuple[int, int]] = {}
    windows, embed_s = 0, 0.0
    pending = iter(enumerate(questions.documents))
    while batch := list(islice(pending, _DOCUMENTS_AT_ONCE)):
        spans = [_spans(document, token_starts, chunk_tokens) for _, document in batch]
        texts = [
            text_to_embed(document.title, document.text[span.start : span.end])
            for (_, document), cut in zip(batch, spans, strict=True)
            for span in cut
        ]
        started = time.perf_counter()
        vectors = iter(embedding.embed_windows(texts))
        embed_s += time.perf_counter() - started
        for (index, document), cut in zip(batch, spans, strict=True):
            new = _new_document(collection.id, document, cut, vectors)
            catalog.publish_document(new)
            windows += sum(len(chunk.windows) for chunk in new.chunks)
            for row in catalog.chunks_of(new.id):
                owners[row.id] = index
                places[row.id] = (row.start, row.end)
        progress(f"{questions.name}: embedding", batch[-1][0] + 1, len(questions.documents))
    return Corpus(collection.id, owners, places, windows, embed_s)


def _spans(document: BenchDocument, token_starts: TokenStarts | None, chunk_tokens: int) -> list[ChunkSpan]:
    if token_starts is None:
        return [ChunkSpan(0, len(document.text), None)]
    parsed = ParsedDocument(title=document.title, kind="txt", text=document.text)
    return split_into_chunks(parsed, token_starts(document.text), chunk_tokens)


def _new_document(
    collection_id: int, document: BenchDocument, spans: Sequence[ChunkSpan], vectors: Iterator[NDArray[np.float32]]
) -> NewDocument:
    """The document with the next vectors, one array a span."""
    digest = hashlib.sha256(f"{document.title}\0{document.text}".encode()).hexdigest()
    chunks = tuple(
        NewChunk(ordinal, None, span.start, span.end, document.text[span.start : span.end], next(vectors))
        for ordinal, span in enumerate(spans)
    )
    return NewDocument(
        id=digest[:32],
        collection_id=collection_id,
        title=document.title,
        kind="txt",
        digest=digest,
        size_bytes=len(document.text.encode()),
        pages=0,
        kv="off",
        flags=(),
        path=digest,
        mtime_ns=0,
        chunks=chunks,
    )
