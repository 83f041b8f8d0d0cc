"""The catalog: what the appliance knows about its documents and their KV, in one SQLite file (see `base`)."""

from storage.catalog.base import (
    BlockRow,
    BlockTotals,
    ChunkRow,
    CodecTotals,
    CollectionRow,
    DocumentRow,
    HotChunk,
    NearFacts,
    NewChunk,
    NewDocument,
    RankedBlock,
    SourceRow,
)
from storage.catalog.catalog import Catalog, CatalogMissing, set_catalog_aside

__all__ = [
    "BlockRow",
    "BlockTotals",
    "Catalog",
    "CatalogMissing",
    "ChunkRow",
    "CodecTotals",
    "CollectionRow",
    "DocumentRow",
    "HotChunk",
    "NearFacts",
    "NewChunk",
    "NewDocument",
    "RankedBlock",
    "SourceRow",
    "set_catalog_aside",
]
