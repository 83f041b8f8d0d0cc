"""Small documents and blocks for the tests of the catalog."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from storage.catalog import BlockRow, Catalog, NewChunk, NewDocument
from storage.home import Home

DIMENSIONS = 4


def open_catalog(folder: Path, *, collection: str = "papers") -> Catalog:
    """A catalog in `folder`, with one collection (id 1)."""
    catalog = Catalog.open(Home(folder))
    catalog.ensure_collection(collection, "embedding-1", DIMENSIONS, 512)
    return catalog


def new_document(
    name: str, texts: Sequence[str] = ("some words of a chunk",), *, collection_id: int = 1, path: str = ""
) -> NewDocument:
    """A document whose id, digest, title and path follow from `name`; one chunk a text, of two windows."""
    chunks = tuple(
        NewChunk(ordinal, None, ordinal * 100, ordinal * 100 + 100, text, window(ordinal, 2))
        for ordinal, text in enumerate(texts)
    )
    return NewDocument(
        id=f"id-{name}",
        collection_id=collection_id,
        title=f"Title of {name}",
        kind="txt",
        digest=f"digest-{name}",
        size_bytes=1000,
        pages=0,
        kv="now",
        flags=(),
        path=path or f"/folder/{name}.txt",
        mtime_ns=7,
        chunks=chunks,
    )


def window(seed: int, count: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """[count, DIMENSIONS] float32, the same for the same seed."""
    return np.random.default_rng(seed).normal(size=(count, DIMENSIONS)).astype(np.float32)


def new_block(key: str, *, generation: int = 0, fingerprint: str = "model-1") -> BlockRow:
    """A block row; its file follows from key and generation."""
    return BlockRow(
        key=key,
        collection_id=1,
        fingerprint=fingerprint,
        kind="self",
        context="head",
        codec="int8",
        generation=generation,
        tokens=10,
        size_bytes=4096,
        header_bytes=512,
        header_checksum="00ff",
        file=f"{key}.int8.{generation}.safetensors",
    )


def with_policy(document: NewDocument, kv: str) -> NewDocument:
    """The same document under another KV policy."""
    return replace(document, kv=kv)
