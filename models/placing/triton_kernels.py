# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803, N806 - constants of a compilation are written in capitals, as Triton does
"""The Triton kernel of placing: one launch places the keys and the values of a run of layers, whatever their codecs.

A program serves a tile of tokens of some heads of one layer and side; the tables of its tokens are read once for all
its heads. Offsets come in `UNIT` bytes and are multiplied here, so that the compiler knows how far loads may be
widened. Rounding to bfloat16 is integer arithmetic, to the nearest and ties to even, so that the interpreter (which
truncates) and the compiled kernel give the bits of plain torch; launched without fused multiply-add for that reason.
"""

import triton
import triton.language as tl

from models.placing.triton_decoding import KIND_BF16, KIND_F32, KIND_GROUPED, decode

STORE_F32, STORE_BF16, STORE_F16 = 0, 1, 2

_F32, _BF16, _GROUPED = tl.constexpr(KIND_F32), tl.constexpr(KIND_BF16), tl.constexpr(KIND_GROUPED)
_STORE_F32, _STORE_BF16 = tl.constexpr(STORE_F32), tl.constexpr(STORE_BF16)


@triton.jit
def _elements(units: tl.tensor, UNIT: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """A place in UNIT bytes as one in elements of WIDTH bytes; multiplying tells the compiler what divides it."""
    return units * (UNIT // WIDTH) if UNIT >= WIDTH else units // (WIDTH // UNIT)


@triton.jit
def _store(out: tl.tensor, numbers: tl.tensor, mask: tl.tensor, STORE: tl.constexpr) -> None:
    """Float32 into the arena's dtype, to the nearest, ties to even; bfloat16 is written as int16."""
    if STORE == _STORE_F32:
        tl.store(out, numbers, mask=mask)
    elif STORE == _STORE_BF16:
        word = numbers.to(tl.int32, bitcast=True)
        word = (word + 0x7FFF + ((word >> 16) & 1)) >> 16
        tl.store(out, word.to(tl.int16), mask=mask)
    else:
        tl.store(out, numbers.to(tl.float16), mask=mask)


@triton.jit
def _place_side(
    bytes_: tl.tensor, halves: tl.tensor, words: tl.tensor, layer: tl.tensor, layer_units: tl.tensor,
    codes_units: tl.tensor, scale_units: tl.tensor, zero_units: tl.tensor, tokens: tl.tensor, heads: tl.tensor,
    cos: tl.tensor, sin: tl.tensor, out: tl.tensor, first_slot: tl.tensor, capacity: tl.tensor,
    arena_layer: tl.tensor, IS_KEY: tl.constexpr, KIND: tl.constexpr, FIRST: tl.constexpr,
    SECOND: tl.constexpr, INVERSE_ROOT: tl.constexpr, ROOT: tl.constexpr, ROW: tl.constexpr,
    UNIT: tl.constexpr, STORE: tl.constexpr, DIM: tl.constexpr, PAD: tl.constexpr,
    TILE: tl.constexpr, HEADS: tl.constexpr,
) -> None:  # fmt: skip
    """One side of one layer: this program's tile of tokens, some heads."""
    HALF: tl.constexpr = DIM // 2
    CODE_BYTES: tl.constexpr = 4 if KIND == _F32 else (2 if KIND == _BF16 else 1)
    SCALE_BYTES: tl.constexpr = 2 if KIND >= _GROUPED else 4
    token = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    element = tl.arange(0, PAD)[None, :]
    rows = token < tokens
    columns = element < HALF
    mask = rows
    if PAD != HALF:
        mask = rows & columns
    begin = layer.to(tl.int64) * layer_units
    bytes_ = bytes_ + _elements(begin, UNIT, 1)
    halves = halves + _elements(begin, UNIT, 2)
    words = words + _elements(begin, UNIT, 4)
    codes_at = _elements(codes_units, UNIT, CODE_BYTES)
    scale_at = _elements(scale_units, UNIT, SCALE_BYTES)
    zero_at = _elements(zero_units, UNIT, SCALE_BYTES)
    slot = first_slot + token
    if IS_KEY:
        at = slot * DIM + element
        cos_low = tl.load(cos + at, mask=mask, other=0.0)
        cos_high = tl.load(cos + at + HALF, mask=mask, other=0.0)
        sin_low = tl.load(sin + at, mask=mask, other=0.0)
        sin_high = tl.load(sin + at + HALF, mask=mask, other=0.0)
    for offset in range(HEADS):
        head = tl.program_id(1) * HEADS + offset
        if head < heads:
            low, high = decode(
                bytes_, halves, words, codes_at, scale_at, zero_at, head, tokens, token, element, rows, columns, mask,
                IS_KEY, KIND, FIRST, SECOND, INVERSE_ROOT, ROOT, ROW, DIM, PAD, TILE,
            )  # fmt: skip
            if IS_KEY:
                turned = low * cos_low - high * sin_low
                high = high * cos_high + low * sin_high
                low = turned
            row = ((layer + arena_layer).to(tl.int64) * heads + head) * capacity * DIM
            _store(out + row + slot * DIM + element, low, mask, STORE)
            _store(out + row + slot * DIM + HALF + element, high, mask, STORE)


@triton.jit(
    do_not_specialize=[
        "layer_units", "k_codes", "k_scale", "k_zero", "v_codes", "v_scale", "v_zero", "tokens", "heads", "layers",
        "first_slot", "capacity", "arena_layer",
    ],
)  # fmt: skip
def place_layers(
    bytes_: tl.tensor, halves: tl.tensor, words: tl.tensor, layer_units: tl.tensor,
    k_codes: tl.tensor, k_scale: tl.tensor, k_zero: tl.tensor,
    v_codes: tl.tensor, v_scale: tl.tensor, v_zero: tl.tensor,
    tokens: tl.tensor, heads: tl.tensor, layers: tl.tensor, cos: tl.tensor, sin: tl.tensor,
    keys: tl.tensor, values: tl.tensor, first_slot: tl.tensor, capacity: tl.tensor, arena_layer: tl.tensor,
    K_KIND: tl.constexpr, K_FIRST: tl.constexpr, K_SECOND: tl.constexpr, K_ROW: tl.constexpr,
    V_KIND: tl.constexpr, V_FIRST: tl.constexpr, V_SECOND: tl.constexpr, V_ROW: tl.constexpr,
    INVERSE_ROOT: tl.constexpr, ROOT: tl.constexpr, UNIT: tl.constexpr, STORE: tl.constexpr,
    DIM: tl.constexpr, PAD: tl.constexpr, TILE: tl.constexpr, HEADS: tl.constexpr,
) -> None:  # fmt: skip
    """Grid `[token tiles, groups of HEADS heads, 2 * layers]`: the first `layers` programs of axis 2 place keys.

    The data begins with the first layer to place, which is layer `arena_layer` of the arena.
    """
    layer = tl.program_id(2)
    if layer < layers:
        _place_side(
            bytes_, halves, words, layer, layer_units, k_codes, k_scale, k_zero, tokens, heads, cos, sin, keys,
            first_slot, capacity, arena_layer, True, K_KIND, K_FIRST, K_SECOND, INVERSE_ROOT, ROOT, K_ROW,
            UNIT, STORE, DIM, PAD, TILE, HEADS,
        )  # fmt: skip
    else:
        _place_side(
            bytes_, halves, words, layer - layers, layer_units, v_codes, v_scale, v_zero, tokens, heads, cos, sin,
            values, first_slot, capacity, arena_layer, False, V_KIND, V_FIRST, V_SECOND, INVERSE_ROOT, ROOT, V_ROW,
            UNIT, STORE, DIM, PAD, TILE, HEADS,
        )  # fmt: skip
