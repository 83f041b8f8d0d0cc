"""Bit packing: exact both ways for any shape, and the bytes are where the format says."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from storage.codecs.planes import PLANES, pack, row_bytes, unpack

each_width = pytest.mark.parametrize("bits", PLANES)


@each_width
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_what_is_packed_is_unpacked(bits: int, data: st.DataObject) -> None:
    head_dim = 8 * data.draw(st.integers(1, 32))
    tokens = data.draw(st.integers(1, 70))
    seed = data.draw(st.integers(0, 1 << 30))
    codes = torch.randint(0, 1 << bits, (2, tokens, head_dim), generator=torch.Generator().manual_seed(seed))
    codes = codes.to(torch.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (2, tokens, row_bytes(head_dim, bits))
    assert torch.equal(unpack(packed, bits, head_dim), codes)


@each_width
def test_rows_are_no_longer_than_they_must(bits: int) -> None:
    for head_dim in range(8, 257, 8):
        assert row_bytes(head_dim, bits) % 4 == 0
        assert 0 <= row_bytes(head_dim, bits) - head_dim * bits / 8 < 4


def test_four_bits_hold_rotary_partners_in_one_byte() -> None:
    codes = torch.arange(16, dtype=torch.uint8)
    assert pack(codes, 4).tolist() == [j | (j + 8) << 4 for j in range(8)]


def test_three_bits_are_a_plane_of_two_and_one_of_one() -> None:
    codes = torch.tensor([0, 1, 2, 3, 4, 5, 6, 7], dtype=torch.uint8)
    low, high = [0, 1, 2, 3, 0, 1, 2, 3], [0, 0, 0, 0, 1, 1, 1, 1]
    first = [low[0] | low[2] << 2 | low[4] << 4 | low[6] << 6, low[1] | low[3] << 2 | low[5] << 4 | low[7] << 6]
    second = [sum(bit << place for place, bit in enumerate(high))]
    assert pack(codes, 3).tolist() == [*first, *second, 0]


@pytest.mark.parametrize(("bits", "seconds"), [(5, [0b11110000]), (6, [0b11100100, 0b11100100])])
def test_five_and_six_bits_are_a_plane_of_four_and_one_of_the_rest(bits: int, seconds: list[int]) -> None:
    tops = [0, 0, 0, 0, 1, 1, 1, 1] if bits == 5 else [0, 0, 1, 1, 2, 2, 3, 3]
    codes = torch.tensor([low | top << 4 for low, top in enumerate(tops)], dtype=torch.uint8)
    firsts = [j | (j + 4) << 4 for j in range(4)]
    assert pack(codes, bits).tolist() == [*firsts, *seconds, *[0] * (4 - len(seconds))]
