"""Bit packing along head_dim: codes of less than a byte, laid out so that a row unpacks in whole vectors.

A code is cut into planes of 4, 2 or 1 bits, lowest bits first, and the planes of a row lie one after another. Byte j
of a plane of b bits holds elements j, j + w, j + 2w … from its lowest bits up, w = head_dim * b / 8 being the
plane's width in bytes: neighbours in memory are neighbours in the row, and rotary partners lie in the same byte.
"""

import torch

PLANES: dict[int, tuple[int, ...]] = {8: (8,), 6: (4, 2), 5: (4, 1), 4: (4,), 3: (2, 1), 2: (2,)}
"""Bits of a code to the bits of its planes. Stored in files: for ever."""
ROW_ALIGNMENT_BYTES = 4
"""Rows are padded with zeros to this, so that the float scales of every layer stay aligned."""


def row_bytes(head_dim: int, bits: int) -> int:
    """Bytes of a packed row of `head_dim` codes (a multiple of 8)."""
    return -(-head_dim * bits // 8 // ROW_ALIGNMENT_BYTES) * ROW_ALIGNMENT_BYTES


def pack(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes uint8 `[…, head_dim]` below 2**bits to bytes `[…, row_bytes]`."""
    head_dim = codes.shape[-1]
    packed = codes.new_zeros((*codes.shape[:-1], row_bytes(head_dim, bits)))
    at = shift = 0
    for plane_bits in PLANES[bits]:
        width = head_dim * plane_bits // 8
        plane = ((codes >> shift) & ((1 << plane_bits) - 1)).reshape(*codes.shape[:-1], 8 // plane_bits, width)
        for part in range(8 // plane_bits):
            packed[..., at : at + width] |= plane[..., part, :] << (part * plane_bits)
        at, shift = at + width, shift + plane_bits
    return packed


def unpack(packed: torch.Tensor, bits: int, head_dim: int) -> torch.Tensor:
    """The inverse of `pack`: bytes `[…, row_bytes]` to codes uint8 `[…, head_dim]`."""
    codes = packed.new_zeros((*packed.shape[:-1], head_dim))
    at = shift = 0
    for plane_bits in PLANES[bits]:
        width = head_dim * plane_bits // 8
        plane = packed[..., at : at + width]
        for part in range(8 // plane_bits):
            piece = (plane >> (part * plane_bits)) & ((1 << plane_bits) - 1)
            codes[..., part * width : (part + 1) * width] |= piece << shift
        at, shift = at + width, shift + plane_bits
    return codes
