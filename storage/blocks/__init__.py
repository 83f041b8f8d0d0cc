"""KV blocks: what one is, its file, its key."""

from storage.blocks.base import BlockHeader, EncodedBlock
from storage.blocks.encode import encode_block
from storage.blocks.header import pack_header, parse_header
from storage.blocks.key import block_key
from storage.blocks.layout import BlockLayout, PartPlace
from storage.blocks.reader import BlockExpectation, read_block_file

__all__ = [
    "BlockExpectation",
    "BlockHeader",
    "BlockLayout",
    "EncodedBlock",
    "PartPlace",
    "block_key",
    "encode_block",
    "pack_header",
    "parse_header",
    "read_block_file",
]
