"""Headers of blocks that attended to neighbours: they name them, and a header that does not is refused."""

from dataclasses import replace

import pytest

from storage.blocks import encode_block, pack_header, parse_header
from storage.contexts import near_context
from storage.errors import BlockDamaged
from tests.storage.blocks.builders import make_block, tensors

KEYS = ("1" * 64, "2" * 64)


def test_the_neighbours_read_back() -> None:
    plain = make_block().header
    header = replace(plain, context=near_context(KEYS), neighbours=KEYS, layer_checksums=())
    block = encode_block(header, *tensors())
    packed, checksum = pack_header(block.header)
    assert parse_header(packed, "x") == (block.header, checksum)
    assert block.header.neighbours == KEYS
    assert b"neighbours" not in pack_header(plain)[0]  # other blocks' files are as they were


@pytest.mark.parametrize(
    ("context", "neighbours"),
    [(near_context(KEYS), ()), (near_context(KEYS), KEYS[::-1]), (near_context(KEYS), KEYS[:1]), ("head", KEYS)],
)
def test_neighbours_of_another_context_are_damage(context: str, neighbours: tuple[str, ...]) -> None:
    header = replace(make_block().header, context=context, neighbours=neighbours)
    with pytest.raises(BlockDamaged, match="neighbours"):
        parse_header(pack_header(header)[0], "x")
