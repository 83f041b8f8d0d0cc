"""What the compiled loops must know of one side of a block: how its codes are stored, how they are scaled, and where.

Numbers, because the loops take nothing else; they are no part of any file. They are compiled into the loops: after a
change here touch loops.py too, which is all that numba's cache watches.
"""

from functools import lru_cache
from typing import NamedTuple

from storage.blocks.layout import BlockLayout, block_layout
from storage.codecs import Codec, find_codec
from storage.codecs.float8 import Float8Codec
from storage.codecs.grouped import GroupedCodec
from storage.codecs.gse import GseCodec
from storage.codecs.int8 import Int8Codec
from storage.codecs.int8t import Int8TensorCodec
from storage.codecs.plain import PlainCodec
from storage.codecs.planes import row_bytes
from storage.geometry import Geometry

FLOAT32, BFLOAT16, SIGNED8, UNSIGNED8, FLOAT8, GSE8, PACKED6, PACKED5, PACKED4, PACKED3 = range(10)
"""Kinds: how the codes of a row are stored."""
PACKED_BITS = {PACKED6: 6, PACKED5: 5, PACKED4: 4, PACKED3: 3}
UNSCALED, BY_TENSOR, BY_CHANNEL, BY_TOKEN, ROTATED = range(5)
"""Scalings: which codes share a scale. `ROTATED` is `BY_TOKEN` and a Hadamard rotation."""
WHOLE = 1 << 40
"""A group longer than any axis."""


class Recipe(NamedTuple):
    """One side of a block. Offsets count from the beginning of a layer; `zero_at` is -1 where there is none."""

    kind: int
    scaling: int
    codes_at: int
    scale_at: int
    zero_at: int
    row_bytes: int
    scale_bytes: int
    """4: float32, 2: bfloat16."""
    group: int
    """Tokens (BY_CHANNEL) or elements (BY_TOKEN) that share a scale."""
    fraction_bits: int
    step: int
    """Between shared exponents (GSE8)."""


@lru_cache(maxsize=4096)
def recipes(geometry: Geometry, tokens: int, key_codec: str, value_codec: str) -> tuple[Recipe, Recipe] | None:
    """The recipes of the keys and the values of such a block; None with a codec the loops do not know."""
    layout = block_layout(geometry, tokens, key_codec, value_codec)
    keys, values = _recipe(layout, "k", find_codec(key_codec)), _recipe(layout, "v", find_codec(value_codec))
    return None if keys is None or values is None else (keys, values)


def _recipe(layout: BlockLayout, side: str, codec: Codec) -> Recipe | None:
    found = _form(codec, side)
    if found is None:
        return None
    kind, scaling, group = found
    head_dim = layout.geometry.head_dim
    bits = {FLOAT32: 32, BFLOAT16: 16, **PACKED_BITS}.get(kind, 8)
    return Recipe(
        kind=kind,
        scaling=scaling,
        codes_at=layout.offset_of(side, "codes"),
        scale_at=layout.offset_of(side, "scale"),
        zero_at=layout.offset_of(side, "zero"),
        row_bytes=row_bytes(head_dim, bits) if bits < 8 else head_dim * bits // 8,
        scale_bytes=2 if isinstance(codec, GroupedCodec) else 4,
        group=head_dim if scaling in (BY_TOKEN, ROTATED) and group == WHOLE else group,
        fraction_bits=codec.fraction_bits if isinstance(codec, Float8Codec | GseCodec) else 0,
        step=codec.step if isinstance(codec, GseCodec) else 0,
    )


def _form(codec: Codec, side: str) -> tuple[int, int, int] | None:
    """Kind, scaling and group."""
    keys = side == "k"
    match codec:
        case PlainCodec():
            return (FLOAT32 if codec.name == "f32" else BFLOAT16), UNSCALED, WHOLE
        case Int8Codec():
            return SIGNED8, (BY_CHANNEL if keys else BY_TOKEN), WHOLE
        case Int8TensorCodec():
            return UNSIGNED8, BY_TENSOR, WHOLE
        case Float8Codec():
            return FLOAT8, UNSCALED, WHOLE
        case GseCodec():
            return GSE8, BY_TENSOR, WHOLE
        case GroupedCodec():
            kind = next((kind for kind, bits in PACKED_BITS.items() if bits == codec.bits), None)
            if kind is None:
                return None
            if keys:
                return kind, BY_CHANNEL, codec.key_group_tokens
            if codec.value_group is None:
                return kind, ROTATED, WHOLE
            return kind, BY_TOKEN, codec.value_group
    return None
