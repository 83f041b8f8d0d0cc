"""`appliance status`: what is stored and what was chosen, without loading a model (or torch)."""

import json
import platform
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from appliance.calibration import measured_choice
from appliance.disk_budget import disk_limit
from appliance.hotness_classes import ClassifiedBlock, classified_blocks
from appliance.settings import Settings
from storage.catalog import Catalog, CatalogMissing
from storage.durable import publish_bytes
from storage.errors import StorageError
from storage.home import Home
from storage.profiles import Profile, profile_from_json
from storage.profiles.measured import NAME as MEASURED

_PACKAGES = ("torch", "transformers", "faiss-cpu", "gradio", "sqlite-utils", "numba")
# Before this release two connections that write at once can damage a WAL database; one writer is safe.
_SAFE_SQLITE = (3, 51, 3)


ENGINE_FILE = "engine.json"
TIER_REFUSALS, TIER_FAILURES, LEASES_EXPIRED = "tier_refusals", "tier_failures", "leases_expired"
_NOT_SHOWN = ("fingerprint", "profile", "memory", "idle_failure", "neighbours")
_NOTHING_STORED: dict[str, Any] = {
    "collections": [],
    "documents": 0,
    "chunks": 0,
    "chunks_without_kv": 0,
    "blocks": 0,
    "kv_bytes": 0,
    "kv_tokens": 0,
    "kv_models": 0,
    "blocks_damaged": 0,
    "counters": {},
    "codecs": {},
    "blocks_to_reencode": 0,
    "neighbours": {"ready": 0, "wanted": 0},
}


def read_status(settings: Settings, hot: int | None = None) -> dict[str, Any]:
    """The object that `status --json` prints; `hot`: with a list of so many chunks, hottest first.

    Raises CatalogDamaged.
    """
    home = Home(settings.home)
    engine, profile, chosen_by = _current_choices(home, last_engine(home, settings.model))
    stored = _stored(home, engine, profile, hot)
    if stored["profile"] is not None:
        stored["profile"]["reason"] = chosen_by
    folder = Home(_existing(home.root))
    status: dict[str, Any] = {
        "home": str(home.root),
        "model": Path(settings.model).name,
        "embedding": Path(settings.embedding).name,
        **stored,
        "engine": {name: choice for name, choice in engine.items() if name not in _NOT_SHOWN},
        "memory": _memory(engine),
        "idle_failure": engine.get("idle_failure"),
        "disk_budget_bytes": disk_limit(folder, stored["kv_bytes"], settings.disk_bytes),
        "disk_free_bytes": shutil.disk_usage(folder.root).free,
        "versions": {
            "appliance": version("appliance"),
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            **{name: version(name) for name in _PACKAGES},
        },
        "notes": _notes(),
    }
    return status


def remember_memory(
    home: Home, memory: Mapping[str, Mapping[str, Any]], reason: str, idle_failure: str | None = None
) -> None:
    """Keep what the memory tiers were granted and did (`BlockStore.memory`), and why, for `read_status`.

    Beside the last choices, and gone with them: where no model was loaded nothing is kept. Never fails: a full disk
    loses a note. Only for the process that writes.
    """
    file = home.root / ENGINE_FILE
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return
    if not isinstance(known, dict):
        return
    kept = {**known, "memory": json.dumps({**memory, "reason": reason})}
    if idle_failure is not None:
        kept["idle_failure"] = idle_failure
    with suppress(StorageError, OSError):
        publish_bytes(file, [json.dumps(kept, indent=1).encode()], home.temporary, sync_directory=False)


def count_memory_troubles(catalog: Catalog, memory: Mapping[str, Mapping[str, Any]]) -> None:
    """Add what went wrong in the memory tiers of this process to the counters; once, when it ends. Never fails."""
    tiers = [state for state in memory.values() if "refusals" in state]
    found = {
        TIER_REFUSALS: sum(tier["refusals"] for tier in tiers),
        TIER_FAILURES: sum(tier.get("failures", 0) for tier in tiers),
        LEASES_EXPIRED: memory.get("leases", {}).get("expired", 0),
    }
    with suppress(StorageError):  # a full disk
        for event, amount in found.items():
            if amount:
                catalog.count(event, amount)


def _stored(home: Home, engine: dict[str, str], profile: Profile | None, hot: int | None) -> dict[str, Any]:
    try:
        catalog = Catalog.open(home, read_only=True)
    except CatalogMissing:
        nothing = {**_NOTHING_STORED, "profile": None if profile is None else _profile_json(profile, [])}
        return nothing if hot is None else {**nothing, "hot": []}
    with catalog:
        fingerprint = engine.get("fingerprint")
        documents, totals, counters = catalog.documents(), catalog.block_totals(), catalog.counters()
        with_kv = sum(catalog.document_kv(document.id, fingerprint).blocks for document in documents)
        chunks = sum(document.chunks for document in documents)
        found: list[ClassifiedBlock] = []
        if profile is not None and fingerprint is not None:
            found = classified_blocks(catalog, profile, fingerprint, engine.get("context", ""))
        stored = {
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
            "codecs": {row.codec: {"blocks": row.blocks, "bytes": row.bytes} for row in catalog.codec_totals()},
            "blocks_to_reencode": sum(each.waits for each in found),
            "neighbours": _neighbours(catalog, engine),
            "profile": None if profile is None else _profile_json(profile, found),
        }
        return stored if hot is None else {**stored, "hot": _hot(catalog, fingerprint, hot)}


def _current_choices(home: Home, engine: dict[str, str]) -> tuple[dict[str, str], Profile | None, str]:
    """The last process's choices, its profile if it can be read, and where that is from.

    `measured` is what the calibration says now: that may be later than the process that was opened last.
    """
    try:
        profile = profile_from_json(json.loads(engine["profile"]))
    except (KeyError, ValueError, RecursionError, OverflowError, StorageError):
        return engine, None, ""
    if profile.name != MEASURED or "fingerprint" not in engine:
        return engine, profile, profile.classes[-1].reason
    current, reason = measured_choice(home, engine["fingerprint"])
    if current != profile:
        engine = {**engine, "codec": f"{current.coldest}: {current.classes[-1].reason}"}
    return engine, current, reason


def _memory(engine: dict[str, str]) -> dict[str, Any] | None:
    """What `remember_memory` kept, if it can be read."""
    try:
        found = json.loads(engine["memory"])
    except (KeyError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _profile_json(profile: Profile, found: list[ClassifiedBlock]) -> dict[str, Any]:
    """The profile, and how many blocks are in each class now (in its codec or waiting for it)."""
    shown = profile.as_json()
    for each in shown["classes"]:
        each["blocks"] = sum(block.heat.name == each["name"] for block in found)
    return shown


def _neighbours(catalog: Catalog, engine: Mapping[str, str]) -> dict[str, int]:
    """Chunks read behind neighbours, and how many are to be: none where the last process had it switched off.

    Ready counts what may be served; a chunk whose neighbours changed since is read again in idle time.
    """
    ready, wanted = catalog.near_progress(engine.get("fingerprint", ""), engine.get("context", ""))
    return {"ready": ready, "wanted": wanted if engine.get("neighbours", "0") != "0" else 0}


def _hot(catalog: Catalog, fingerprint: str | None, limit: int) -> list[dict[str, Any]]:
    return [
        {
            "document": chunk.title,
            "chunk": chunk.ordinal + 1,
            "page": chunk.page,
            "score": round(chunk.score, 3),
            "uses": chunk.uses,
            "codec": chunk.codec,
            "bytes": chunk.size_bytes,
        }
        for chunk in catalog.hottest(limit, fingerprint)
    ]


def last_engine(home: Home, model: str) -> dict[str, str]:
    """What the last process that loaded `model` (a setting) chose, each with its reason, and its fingerprint.

    Empty before the first, and where the last process loaded another model.
    """
    try:
        found = json.loads((home.root / ENGINE_FILE).read_text())
    except (OSError, ValueError, RecursionError):
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
