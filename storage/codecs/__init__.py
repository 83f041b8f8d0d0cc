"""How keys and values are encoded. The names are for ever: files carry them."""

import torch

from storage.codec_pair import CodecPair
from storage.codecs.base import Codec, Parts, PartSpec
from storage.codecs.float8 import Float8Codec
from storage.codecs.grouped import GroupedCodec
from storage.codecs.gse import GseCodec
from storage.codecs.int8 import Int8Codec
from storage.codecs.int8t import Int8TensorCodec
from storage.codecs.plain import PlainCodec
from storage.errors import StorageError

CODECS: dict[str, Codec] = {
    codec.name: codec
    for codec in (
        PlainCodec("f32", "F32"),
        PlainCodec("bf16", "BF16"),
        Int8Codec(),
        Int8TensorCodec(),
        Float8Codec("e4m3", torch.float8_e4m3fn, fraction_bits=3),
        Float8Codec("e5m2", torch.float8_e5m2, fraction_bits=2),
        # GSE-8, sign + index bits + fraction bits. The paper finds 1+4+3 the most exact of its three; that is so with
        # consecutive exponents (step 1) against the others at the rule of its text (step = fraction bits - 1).
        GseCodec("gse8", index_bits=4, fraction_bits=3, step=1),
        GseCodec("gse8r", index_bits=4, fraction_bits=3, step=1, rounding=True),
        GseCodec("gse8-125", index_bits=2, fraction_bits=5, step=1),
        GseCodec("gse8-134", index_bits=3, fraction_bits=4, step=1),
        GseCodec("gse8-125s4", index_bits=2, fraction_bits=5, step=4),
        GseCodec("gse8-134s3", index_bits=3, fraction_bits=4, step=3),
        GseCodec("gse8-143s2", index_bits=4, fraction_bits=3, step=2),
        GroupedCodec("int6", bits=6, key_group_tokens=64, value_group=32),
        GroupedCodec("int6h", bits=6, key_group_tokens=64, value_group=None),
        GroupedCodec("int5", bits=5, key_group_tokens=64, value_group=32),
        GroupedCodec("int5h", bits=5, key_group_tokens=64, value_group=None),
        GroupedCodec("int4", bits=4, key_group_tokens=64, value_group=32),
        GroupedCodec("int4f", bits=4, key_group_tokens=32, value_group=16),
        GroupedCodec("int4h", bits=4, key_group_tokens=64, value_group=None),
        GroupedCodec("int3", bits=3, key_group_tokens=64, value_group=32),
        GroupedCodec("int3h", bits=3, key_group_tokens=64, value_group=None),
    )
}
DEFAULT_CODEC = "int8"


def find_codec(name: str) -> Codec:
    """The codec of this name. Raises StorageError naming those that exist."""
    if name not in CODECS:
        raise StorageError(f"codec {name!r} is unknown: choose one of {', '.join(CODECS)}")
    return CODECS[name]


__all__ = ["CODECS", "DEFAULT_CODEC", "Codec", "CodecPair", "PartSpec", "Parts", "find_codec"]
