"""Profiles of two codecs and a warmed folder, for the tests of encoding again."""

from storage.catalog import BlockRow, Catalog
from storage.codecs import CodecPair
from storage.profiles import HotnessClass, Profile


def two_classes(hot: str, cold: str, share: float = 0.5) -> Profile:
    """The hottest `share` of the chunks in one codec, the rest in another."""
    return Profile(
        "two",
        (
            HotnessClass("hot", share, CodecPair.named(hot), "asked for"),
            HotnessClass("cold", 1 - share, CodecPair.named(cold), "asked for"),
        ),
    )


def rows_by_chunk(catalog: Catalog) -> dict[int, BlockRow]:
    """The ready block of each chunk."""
    return {
        chunk: row
        for ranked in catalog.ranked_blocks()
        for chunk in ranked.chunk_ids
        if (row := catalog.block(ranked.key)) is not None
    }


def codecs(catalog: Catalog) -> dict[int, str]:
    return {chunk: row.codec for chunk, row in sorted(rows_by_chunk(catalog).items())}
