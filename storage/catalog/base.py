"""The catalog's contract: what the rows are and what every caller may rely on.

- A row says `ready` only after its file is durable; deleting goes the other way: row `deleting` (commit), file
  unlinked, row removed. Readers see `ready` rows only, unless a method says otherwise.
- Every method that changes something commits before it returns; half of a change is never seen, nor after a kill.
- One connection, one lock: any thread may call any method. One process writes (see `storage.lock`); others may read.
- Deleting leaves no copy: after `finish_delete` no byte of the text is in the catalog file or its log.
- Chunk ids grow for ever and are never used again, so that an index in memory can never mean another chunk.

Errors: CatalogDamaged (the file), DiskFull, UnknownRow (no such row), HomeBusy (locked by another process),
StorageError (a value the schema refuses).
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
ChunkIds = npt.NDArray[np.int64]
TokenIds = npt.NDArray[np.int32]


@dataclass(frozen=True)
class CollectionRow:
    """Documents that are searched together; they keep the embedding model they began with."""

    id: int
    name: str
    embedding_fingerprint: str
    dimensions: int
    chunk_tokens: int


@dataclass(frozen=True)
class DocumentRow:
    """One content in one collection, however many paths hold it. `pages` is 0 where the kind has none."""

    id: str
    collection_id: int
    title: str
    kind: str
    digest: str
    size_bytes: int
    pages: int
    chunks: int
    kv: str
    """`now`, `idle` or `off`: when its KV blocks are computed."""
    state: str
    """`ready` or `deleting`."""
    flags: tuple[str, ...]
    added_at: str
    """UTC, ISO 8601, to the second."""


@dataclass(frozen=True)
class SourceRow:
    """A path that held the content of a document when it was last looked at."""

    collection_id: int
    path: str
    document_id: str
    size_bytes: int
    mtime_ns: int


@dataclass(frozen=True)
class ChunkRow:
    """A span `[start, end)` of a document's text, in characters; `page` is None where the kind has no pages."""

    id: int
    document_id: str
    collection_id: int
    ordinal: int
    page: int | None
    start: int
    end: int
    text: str
    title: str


@dataclass(frozen=True)
class BlockRow:
    """A KV block file. `header_bytes` and `header_checksum` let a reader check the header before it believes it."""

    key: str
    collection_id: int
    fingerprint: str
    kind: str
    """`self` (decoder KV) or `cross` (encoder KV)."""
    context: str
    codec: str
    generation: int
    tokens: int
    size_bytes: int
    header_bytes: int
    header_checksum: str
    file: str
    """Name in the folder of blocks, no path."""
    state: str = "ready"


@dataclass(frozen=True)
class BlockTotals:
    """Sums over the ready blocks."""

    blocks: int
    bytes: int
    tokens: int


@dataclass(frozen=True)
class NewChunk:
    """A chunk to publish; `windows` is [windows, dimensions] float32, one row for each window embedded."""

    ordinal: int
    page: int | None
    start: int
    end: int
    text: str
    windows: Vectors


@dataclass(frozen=True)
class NewDocument:
    """A parsed document to publish. `id` is the caller's and depends on collection and content only."""

    id: str
    collection_id: int
    title: str
    kind: str
    digest: str
    size_bytes: int
    pages: int
    kv: str
    flags: tuple[str, ...]
    path: str
    mtime_ns: int
    chunks: tuple[NewChunk, ...]


@dataclass(frozen=True)
class HotChunk:
    """A chunk that was asked for: `score` is its decayed count, `uses` the plain one; None where it has no block."""

    chunk_id: int
    document_id: str
    title: str
    ordinal: int
    page: int | None
    codec: str | None
    generation: int | None
    size_bytes: int | None
    score: float
    uses: int


@dataclass(frozen=True)
class RankedBlock:
    """A ready block and how hot it is; `chunk_ids` are the chunks that use it, lowest first. `context`: contexts.py."""

    key: str
    size_bytes: int
    codec: str
    generation: int
    tokens: int
    collection_id: int
    fingerprint: str
    context: str
    chunk_ids: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class NearFacts:
    """What the catalog keeps of a block that attended to other chunks (FusionRAG, offline stage), beside its row.

    `base_key` is the key of the chunk's block without neighbours, `neighbour_ids` the chunks it attended to, first
    placed first. `outside_mass`, float32 `[2, tokens]`, is each token's attention at the last layer, summed over heads
    (Cache-Craft): on every key outside its own chunk, and on the neighbours' alone.
    """

    base_key: str
    neighbour_ids: tuple[int, ...]
    outside_mass: Vectors


@dataclass(frozen=True)
class CodecTotals:
    """Sums over the ready blocks of one codec."""

    codec: str
    blocks: int
    bytes: int
