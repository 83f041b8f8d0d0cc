"""Looking at what a data folder holds: everything a later run could depend on, and every byte of it."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

from storage.catalog import BlockRow, Catalog
from storage.home import Home


def snapshot(root: Path) -> dict[str, Any]:
    """Documents, sources, chunks with ids and vectors, blocks, and every file below documents/ and blocks/."""
    home = Home(root)
    with Catalog.open(home, read_only=True) as catalog:
        documents = catalog.documents()
        vectors = {}
        for row in catalog.collections():
            chunk_ids, numbers = catalog.vectors(row.id)
            vectors[row.name] = (chunk_ids.tolist(), hashlib.sha256(numbers.tobytes()).hexdigest())
        return {
            "collections": catalog.collections(),
            "documents": [replace(row, added_at="") for row in sorted(documents, key=lambda row: row.id)],
            "sources": {document.id: catalog.sources_of(document.id) for document in documents},
            "chunks": {document.id: catalog.chunks_of(document.id) for document in documents},
            "kv": {document.id: catalog.document_kv(document.id) for document in documents},
            "blocks": catalog.all_blocks(),
            "vectors": vectors,
            "files": files_of(home.documents) | files_of(home.blocks),
            "drafts": sorted(file.name for file in home.temporary.iterdir()),
            "faults": catalog.faults(),
        }


def files_of(folder: Path) -> dict[str, str]:
    """Digest of every file, by name."""
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}


def ready_blocks(root: Path) -> list[BlockRow]:
    """Rows that say `ready`."""
    with Catalog.open(Home(root), read_only=True) as catalog:
        return [row for row in catalog.all_blocks() if row.state == "ready"]


def files_with(root: Path, needle: bytes) -> list[str]:
    """Every file below a folder that holds these bytes, in any case."""
    wanted = needle.lower()
    return sorted(
        str(file.relative_to(root))
        for file in root.rglob("*")
        if file.is_file() and not file.is_symlink() and wanted in file.read_bytes().lower()
    )
