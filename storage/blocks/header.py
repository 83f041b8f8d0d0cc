"""The header of a block file: valid safetensors, padded with spaces so that data begins on a 4 KiB boundary."""

import json
from collections.abc import Callable
from typing import Any

import xxhash

from storage.blocks.base import FORMAT_VERSION, BlockHeader
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.codecs import CODECS
from storage.contexts import is_near, near_context
from storage.errors import BlockDamaged
from storage.geometry import Geometry

LENGTH_BYTES = 8
LARGEST_HEADER_BYTES = 1 << 20
LARGEST_TOKENS = 1 << 20
BLANK_CHECKSUM = "0" * 32
_CHECKSUM_FIELD = "header_xxh3_128"
_BEGINNING = b'{"__metadata__":'
_JSON = json.JSONDecoder()


def pack_header(header: BlockHeader) -> tuple[bytes, str]:
    """The header's bytes (length prefix, JSON, spaces) and its own XXH3-128, taken with that field blank."""
    geometry = header.geometry
    metadata = {
        "format_version": FORMAT_VERSION,
        _CHECKSUM_FIELD: BLANK_CHECKSUM,
        "key": header.key,
        "fingerprint": header.fingerprint,
        "collection": header.collection,
        "kind": header.kind,
        "context": header.context,
        "key_codec": header.key_codec,
        "value_codec": header.value_codec,
        "generation": str(header.generation),
        "tokens": str(header.tokens),
        "geometry": f"{geometry.layers},{geometry.kv_heads},{geometry.head_dim}",
        "layer_xxh3_128": ",".join(header.layer_checksums),
    }
    if header.neighbours:
        metadata["neighbours"] = ",".join(header.neighbours)
    table: dict[str, Any] = {"__metadata__": metadata}
    table.update(header.layout.tensor_table())
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=True).encode()
    padded = text + b" " * (-(LENGTH_BYTES + len(text)) % ALIGNMENT_BYTES)
    blank = len(padded).to_bytes(LENGTH_BYTES, "little") + padded
    checksum = xxhash.xxh3_128_hexdigest(blank)
    return blank.replace(_checksum_bytes(BLANK_CHECKSUM), _checksum_bytes(checksum), 1), checksum


def parse_header(raw: bytes, name: str, published: str = "") -> tuple[BlockHeader, str]:
    """The header and its checksum from the first bytes of a file. Raises BlockDamaged naming the field.

    Refuses before anything of the size the header claims is allocated. Where its checksum is the one it was `published`
    with, its table of offsets is not read: it says again what the layout says, and takes ten times as long as the rest.
    """
    checksum = check_header_bytes(raw, name)
    whole = checksum != published or not raw.startswith(_BEGINNING, LENGTH_BYTES)
    try:
        if whole:
            table = json.loads(raw[LENGTH_BYTES:])
            metadata = table.pop("__metadata__")
        else:
            metadata, _ = _JSON.raw_decode(raw[LENGTH_BYTES + len(_BEGINNING) :].decode("ascii"))
        header = _header_of(metadata)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = str(error)[:80]
        raise BlockDamaged(f"{name}: header field {reason} is not valid; the block is computed again") from error
    if not whole:
        return header, checksum
    # Counted first: a header that claims many layers must not make a table many times its own size.
    layout = header.layout
    if len(table) != header.geometry.layers * len(layout.places) + 1 or table != layout.tensor_table():
        raise BlockDamaged(f"{name}: header offsets do not match its geometry; the block is computed again")
    return header, checksum


def check_header_bytes(raw: bytes, name: str) -> str:
    """The header's own checksum after comparing it with its bytes. Raises BlockDamaged."""
    if len(raw) < ALIGNMENT_BYTES or len(raw) % ALIGNMENT_BYTES or len(raw) > LARGEST_HEADER_BYTES:
        raise BlockDamaged(f"{name}: header of {len(raw)} bytes is torn; the block is computed again")
    if int.from_bytes(raw[:LENGTH_BYTES], "little") != len(raw) - LENGTH_BYTES:
        raise BlockDamaged(f"{name}: header length does not match; the block is computed again")
    marker = f'"{_CHECKSUM_FIELD}":"'.encode()
    at = raw.find(marker)
    stored = raw[at + len(marker) : at + len(marker) + len(BLANK_CHECKSUM)] if at >= 0 else b""
    blank = raw.replace(marker + stored, marker + BLANK_CHECKSUM.encode(), 1)
    if xxhash.xxh3_128_hexdigest(blank).encode() != stored:
        raise BlockDamaged(f"{name}: header checksum does not match; the block is computed again")
    return stored.decode()


def _checksum_bytes(checksum: str) -> bytes:
    return f'"{_CHECKSUM_FIELD}":"{checksum}"'.encode()


def _header_of(metadata: dict[str, str]) -> BlockHeader:
    """Raises ValueError or KeyError naming the field."""
    if metadata["format_version"] != FORMAT_VERSION:
        raise ValueError(f"format_version {metadata['format_version']!r}")
    layers, kv_heads, head_dim = (_positive(part, "geometry", 1 << 16) for part in metadata["geometry"].split(","))
    text: Callable[[str], str] = metadata.__getitem__
    for field in ("key_codec", "value_codec"):
        if text(field) not in CODECS:
            raise ValueError(f"{field} {text(field)!r}")
    checksums = tuple(text("layer_xxh3_128").split(","))
    if len(checksums) != layers or any(len(checksum) != len(BLANK_CHECKSUM) for checksum in checksums):
        raise ValueError("layer_xxh3_128")
    neighbours = tuple(metadata["neighbours"].split(",")) if "neighbours" in metadata else ()
    if (text("context") != near_context(neighbours)) if neighbours else is_near(text("context")):
        raise ValueError("neighbours")
    return BlockHeader(
        key=text("key"),
        fingerprint=text("fingerprint"),
        collection=text("collection"),
        kind=text("kind"),
        context=text("context"),
        key_codec=text("key_codec"),
        value_codec=text("value_codec"),
        generation=_positive(text("generation"), "generation", 1 << 31, smallest=0),
        tokens=_positive(text("tokens"), "tokens", LARGEST_TOKENS),
        geometry=Geometry(layers, kv_heads, head_dim),
        layer_checksums=checksums,
        neighbours=neighbours,
    )


def _positive(text: str, field: str, largest: int, smallest: int = 1) -> int:
    number = int(text)
    if not smallest <= number <= largest:
        raise ValueError(f"{field} {number}")
    return number
