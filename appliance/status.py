"""`appliance status`: what is stored and what was chosen, without loading a model (or torch)."""

import json
import platform
import shutil
import sqlite3
from importlib.metadata import version
from pathlib import Path
from typing import Any

from appliance.settings import Settings
from storage.catalog import Catalog, CatalogMissing
from storage.home import Home

_PACKAGES = ("torch", "transformers", "faiss-cpu", "gradio", "sqlite-utils", "numba")
# Before this release two connections that write at once can damage a WAL database; one writer is safe.
_SAFE_SQLITE = (3, 51, 3)


def read_status(settings: Settings) -> dict[str, Any]:
    """The object that `status --json` prints. Raises CatalogDamaged."""
    home = Home(settings.home)
    engine = last_engine(home, settings.model)
    status: dict[str, Any] = {
        "home": str(home.root),
        "model": Path(settings.model).name,
        "embedding": Path(settings.embedding).name,
        **_stored(home, engine.get("fingerprint")),
        "engine": {name: choice for name, choice in engine.items() if name != "fingerprint"},
        "disk_free_bytes": shutil.disk_usage(_existing(home.root)).free,
        "versions": {
            "appliance": version("appliance"),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: version(name) for name in _PACKAGES},
        },
        "notes": _notes(),
    }
    return status


def _stored(home: Home, fingerprint: str | None) -> dict[str, Any]:
    try:
        catalog = Catalog.open(home, read_only=True)
    except CatalogMissing:
        empty = {"collections": [], "documents": 0, "chunks": 0, "chunks_without_kv": 0, "blocks": 0, "kv_bytes": 0}
        return {**empty, "kv_tokens": 0, "kv_models": 0, "blocks_damaged": 0, "counters": {}}
    with catalog:
        documents, totals, counters = catalog.documents(), catalog.block_totals(), catalog.counters()
        with_kv = sum(catalog.document_kv(document.id, fingerprint).blocks for document in documents)
        chunks = sum(document.chunks for document in documents)
        return {
            "collections": [row.name for row in catalog.collections()],
            "documents": len(documents),
            "chunks": chunks,
            "chunks_without_kv": chunks - with_kv,
            "blocks": totals.blocks,
            "kv_bytes": totals.bytes,
            "kv_tokens": totals.tokens,
            "kv_models": len(catalog.block_fingerprints()),
            "blocks_damaged": counters.get("blocks_damaged", 0),
            "counters": counters,
        }


def last_engine(home: Home, model: str) -> dict[str, str]:
    """What the last process that loaded `model` (a setting) chose, each with its reason, and its fingerprint.

    Empty before the first, and where the last process loaded another model.
    """
    try:
        found = json.loads((home.root / "engine.json").read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("model") != Path(model).name:
        return {}
    return {str(name): str(value) for name, value in found.items()}


def _notes() -> list[str]:
    if sqlite3.sqlite_version_info < _SAFE_SQLITE:
        return [
            f"SQLite {sqlite3.sqlite_version} is before 3.51.3: one process writes at a time, and the lock sees to it"
        ]
    return []


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path
