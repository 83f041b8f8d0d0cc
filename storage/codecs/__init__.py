"""How keys and values are encoded. The names are for ever: files carry them."""

from storage.codecs.base import Codec, Parts, PartSpec
from storage.codecs.int8 import Int8Codec
from storage.codecs.pair import CodecPair
from storage.codecs.plain import PlainCodec
from storage.errors import StorageError

CODECS: dict[str, Codec] = {
    codec.name: codec for codec in (PlainCodec("f32", "F32"), PlainCodec("bf16", "BF16"), Int8Codec())
}
DEFAULT_CODEC = "int8"


def find_codec(name: str) -> Codec:
    """The codec of this name. Raises StorageError naming those that exist."""
    if name not in CODECS:
        raise StorageError(f"codec {name!r} is unknown: choose one of {', '.join(CODECS)}")
    return CODECS[name]


__all__ = ["CODECS", "DEFAULT_CODEC", "Codec", "CodecPair", "PartSpec", "Parts", "find_codec"]
