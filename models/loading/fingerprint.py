"""What a block's numbers depend on, as one digest (DESIGN.md §3, fingerprint)."""

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

# Raised when the same weights would give other numbers through this code.
COMPUTATION_VERSION = "2"
_READ_BYTES = 8 << 20
_IGNORED = ("_name_or_path", "_commit_hash", "transformers_version", "architectures")


def weights_digest(folder: Path, cache: Path | None, remember: bool = True) -> str:
    """XXH3-128 over all `*.safetensors` of a model folder, in name order.

    Hashing 16 GB takes seconds, so `cache` (a JSON file) remembers the digest by name, size, inode and
    times of change; a cache that cannot be written is let be. Without `remember` it is only read.
    """
    files = sorted(folder.glob("*.safetensors"))
    stamp = [_stamp(file.name, file.stat()) for file in files]
    known = _read_cache(cache)
    entry = known.get(str(folder.resolve()))
    if isinstance(entry, dict) and entry.get("stamp") == stamp and isinstance(entry.get("digest"), str):
        return str(entry["digest"])
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(file.name.encode())
        with file.open("rb") as stream:
            while data := stream.read(_READ_BYTES):
                digest.update(data)
    if cache is not None and remember:
        known[str(folder.resolve())] = {"stamp": stamp, "digest": digest.hexdigest()}
        with suppress(OSError):
            cache.write_text(json.dumps(known))
    return digest.hexdigest()


def model_identity(config: dict[str, Any], weights: str, tokenizer_json: str, precision: Sequence[str]) -> str:
    """Digest of weights, config (rotary included), tokenizer and precision (dtype, weight quantisation)."""
    config = {name: value for name, value in config.items() if name not in _IGNORED}
    fields = [COMPUTATION_VERSION, weights, json.dumps(config, sort_keys=True, default=str), tokenizer_json, *precision]
    return digest_fields(fields)


def digest_fields(fields: Sequence[str]) -> str:
    """SHA-256 over fields, each preceded by its length, in hexadecimal."""
    digest = hashlib.sha256()
    for field in fields:
        encoded = field.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def _stamp(name: str, found: os.stat_result) -> list[str | int]:
    """The inode's own time too: a copy that keeps the file's time would pass for the old weights."""
    return [name, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def _read_cache(cache: Path | None) -> dict[str, Any]:
    """The remembered digests; a cache that cannot be read is an empty one, its loss costs one hashing."""
    if cache is None or not cache.is_file():
        return {}
    try:
        known = json.loads(cache.read_text())
    except (ValueError, OSError, RecursionError):
        return {}
    return known if isinstance(known, dict) else {}
