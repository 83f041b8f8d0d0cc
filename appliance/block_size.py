"""How large a block's file will be, before anything is computed: what the disk budget is asked for."""

from functools import lru_cache

from storage.blocks import BlockHeader, pack_header
from storage.codecs import CodecPair
from storage.geometry import Geometry

_DIGEST = "0" * 64
_CHECKSUM = "0" * 32


@lru_cache(maxsize=1024)
def block_file_bytes(
    geometry: Geometry, tokens: int, codec: CodecPair, collection: str, context: str, neighbours: int = 0
) -> int:
    """Header and data, to the byte (a generation of many digits aside). `neighbours` are named in the header."""
    header = BlockHeader(
        key=_DIGEST,
        fingerprint=_DIGEST,
        collection=collection,
        kind="self",
        context=context,
        key_codec=codec.keys,
        value_codec=codec.values,
        generation=0,
        tokens=tokens,
        geometry=geometry,
        layer_checksums=(_CHECKSUM,) * geometry.layers,
        neighbours=(_DIGEST,) * neighbours,
    )
    return len(pack_header(header)[0]) + header.layout.data_bytes
