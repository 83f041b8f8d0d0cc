"""The tables of the catalog, as the migrations make them."""

from storage.home import APPLICATION_ID

__all__ = ["APPLICATION_ID", "HOTNESS", "NEIGHBOURS", "TABLES", "UNCLAIMED_BLOCKS", "statements"]

TABLES = """
CREATE TABLE collections (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 200),
    embedding_fingerprint TEXT NOT NULL,
    dimensions INTEGER NOT NULL CHECK (dimensions BETWEEN 1 AND 65536),
    chunk_tokens INTEGER NOT NULL CHECK (chunk_tokens > 0),
    vectors_version INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE documents (
    id TEXT NOT NULL PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 200),
    collection_id INTEGER NOT NULL REFERENCES collections (id),
    title TEXT NOT NULL,
    kind TEXT NOT NULL,
    digest TEXT NOT NULL,
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    pages INTEGER NOT NULL CHECK (pages >= 0),
    chunks INTEGER NOT NULL CHECK (chunks >= 0),
    kv TEXT NOT NULL CHECK (kv IN ('now', 'idle', 'off')),
    state TEXT NOT NULL CHECK (state IN ('ready', 'deleting')),
    flags TEXT NOT NULL,
    added_at TEXT NOT NULL,
    UNIQUE (collection_id, digest)
) STRICT;

CREATE TABLE sources (
    collection_id INTEGER NOT NULL REFERENCES collections (id),
    path TEXT NOT NULL CHECK (length(path) > 0),
    document_id TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
    mtime_ns INTEGER NOT NULL,
    UNIQUE (collection_id, path)
) STRICT;
CREATE INDEX sources_by_document ON sources (document_id);

CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    document_id TEXT NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    collection_id INTEGER NOT NULL REFERENCES collections (id),
    ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
    page INTEGER CHECK (page >= 1),
    start INTEGER NOT NULL CHECK (start >= 0),
    "end" INTEGER NOT NULL CHECK ("end" > start),
    text TEXT NOT NULL,
    UNIQUE (document_id, ordinal)
) STRICT;
CREATE INDEX chunks_by_collection ON chunks (collection_id, id, document_id);

CREATE TABLE vectors (
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    ordinal INTEGER NOT NULL CHECK (ordinal >= 0),
    vector BLOB NOT NULL CHECK (length(vector) > 0 AND length(vector) % 4 = 0),
    PRIMARY KEY (chunk_id, ordinal)
) STRICT;

CREATE TABLE token_ids (
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    tokenizer TEXT NOT NULL,
    ids BLOB NOT NULL CHECK (length(ids) % 4 = 0),
    PRIMARY KEY (chunk_id, tokenizer)
) STRICT;

CREATE VIEW chunk_words AS
    SELECT chunks.id AS id, documents.title AS title, chunks.text AS text
    FROM chunks JOIN documents ON documents.id = chunks.document_id;
CREATE VIRTUAL TABLE words USING fts5 (
    title, text, content = 'chunk_words', content_rowid = 'id', tokenize = 'porter unicode61 remove_diacritics 2'
);

CREATE TABLE blocks (
    key TEXT NOT NULL PRIMARY KEY CHECK (length(key) BETWEEN 1 AND 200),
    collection_id INTEGER NOT NULL REFERENCES collections (id),
    fingerprint TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('self', 'cross')),
    context TEXT NOT NULL,
    codec TEXT NOT NULL,
    generation INTEGER NOT NULL CHECK (generation >= 0),
    tokens INTEGER NOT NULL CHECK (tokens > 0),
    size_bytes INTEGER NOT NULL CHECK (size_bytes > 0),
    header_bytes INTEGER NOT NULL CHECK (header_bytes > 0),
    header_checksum TEXT NOT NULL,
    file TEXT NOT NULL UNIQUE CHECK (length(file) > 0 AND instr(file, '/') = 0),
    state TEXT NOT NULL CHECK (state IN ('ready', 'deleting'))
) STRICT;

CREATE TABLE block_chunks (
    block_key TEXT NOT NULL REFERENCES blocks (key) ON DELETE CASCADE,
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    PRIMARY KEY (block_key, chunk_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX block_chunks_by_chunk ON block_chunks (chunk_id);

CREATE TABLE counters (event TEXT NOT NULL PRIMARY KEY, amount INTEGER NOT NULL) STRICT;
CREATE TABLE unfinished (work TEXT NOT NULL PRIMARY KEY) STRICT;
"""

UNCLAIMED_BLOCKS = """
CREATE TABLE unclaimed_blocks (
    file TEXT NOT NULL PRIMARY KEY CHECK (length(file) > 0 AND instr(file, '/') = 0),
    collection_id INTEGER NOT NULL REFERENCES collections (id)
) STRICT
"""

# `score` is the decayed count of questions at number `at_question`; how many were asked is the counter `questions`.
HOTNESS = """
CREATE TABLE hotness (
    chunk_id INTEGER PRIMARY KEY REFERENCES chunks (id) ON DELETE CASCADE,
    score REAL NOT NULL CHECK (score >= 0),
    at_question INTEGER NOT NULL CHECK (at_question >= 0),
    uses INTEGER NOT NULL CHECK (uses > 0)
) STRICT;

CREATE TABLE refused_codecs (
    block_key TEXT NOT NULL REFERENCES blocks (key) ON DELETE CASCADE,
    codec TEXT NOT NULL,
    PRIMARY KEY (block_key, codec)
) STRICT, WITHOUT ROWID;
"""

# A chunk's block of the highest `id` is the one to serve. `neighbours` is how many it attended to: where fewer rows of
# `block_neighbours` are left, it may not be served. `outside_mass` is float32 [2, tokens], little-endian (NearFacts).
NEIGHBOURS = """
CREATE TABLE near_blocks (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    block_key TEXT NOT NULL UNIQUE REFERENCES blocks (key) ON DELETE CASCADE,
    base_key TEXT NOT NULL CHECK (length(base_key) > 0),
    neighbours INTEGER NOT NULL CHECK (neighbours > 0),
    outside_mass BLOB NOT NULL CHECK (length(outside_mass) > 0 AND length(outside_mass) % 8 = 0)
) STRICT;
CREATE INDEX near_blocks_by_base ON near_blocks (base_key);

CREATE TABLE block_neighbours (
    block_key TEXT NOT NULL REFERENCES blocks (key) ON DELETE CASCADE,
    rank INTEGER NOT NULL CHECK (rank >= 0),
    chunk_id INTEGER NOT NULL REFERENCES chunks (id) ON DELETE CASCADE,
    PRIMARY KEY (block_key, rank)
) STRICT, WITHOUT ROWID;
CREATE INDEX block_neighbours_by_chunk ON block_neighbours (chunk_id);
"""


def statements(script: str = TABLES) -> list[str]:
    """A script, one statement at a time (run as a whole it would commit in the middle of the migration)."""
    return [statement.strip() for statement in script.split(";\n") if statement.strip()]
