"""A block's row in the catalog: made from its header, and what it promises of the file."""

from storage.blocks import BlockExpectation, BlockHeader
from storage.catalog import BlockRow


def row_of(header: BlockHeader, collection_id: int, header_bytes: int, checksum: str) -> BlockRow:
    """The catalog's row of a block whose packed header has this length and XXH3-128."""
    return BlockRow(
        key=header.key,
        collection_id=collection_id,
        fingerprint=header.fingerprint,
        kind=header.kind,
        context=header.context,
        codec=header.codec,
        generation=header.generation,
        tokens=header.tokens,
        size_bytes=header_bytes + header.layout.data_bytes,
        header_bytes=header_bytes,
        header_checksum=checksum,
        file=header.file_name,
    )


def expectation(row: BlockRow) -> BlockExpectation:
    """What the catalog promises of a row's file."""
    return BlockExpectation(
        key=row.key,
        fingerprint=row.fingerprint,
        codec=row.codec,
        generation=row.generation,
        tokens=row.tokens,
        size_bytes=row.size_bytes,
        header_bytes=row.header_bytes,
        header_checksum=row.header_checksum,
    )
