"""Headers that lie, with a right checksum of themselves: refused before anything of the claimed size is made."""

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from storage.blocks import BlockExpectation, parse_header, read_block_file
from storage.blocks.header import LARGEST_HEADER_BYTES
from storage.buffers import AlignedBuffers
from storage.errors import BlockDamaged
from tests.storage.blocks.builders import (
    BLANK_FIELD,
    expectation,
    forged_header,
    header_table,
    make_block,
    packed_bytes,
    sealed,
)

MOST_BYTES = 16 * LARGEST_HEADER_BYTES
Lie = Callable[[dict[str, Any]], Any]
FIRST = "layers.0.k.codes"


def says(**fields: Any) -> Lie:
    """Metadata fields with other values."""
    return lambda table: table["__metadata__"].update(fields)


def offsets(*values: Any) -> Lie:
    return lambda table: table[FIRST].update(data_offsets=list(values))


def without(name: str) -> Lie:
    return lambda table: table["__metadata__"].pop(name)


LIES: dict[str, Lie] = {
    "huge tokens": says(tokens=str(1 << 60)),
    "most tokens": says(tokens=str(1 << 20)),
    "no tokens": says(tokens="0"),
    "negative tokens": says(tokens="-37"),
    "one token less": says(tokens="36"),
    "tokens in words": says(tokens="many"),
    "tokens without end": says(tokens="9" * 100_000),
    "tokens a list": says(tokens=[37]),
    "tokens nothing": says(tokens=None),
    "huge geometry": says(geometry="3,65536,65536"),
    "odd geometry": says(geometry="3,2,15"),
    "geometry of two": says(geometry="3,2"),
    "geometry of four": says(geometry="3,2,16,1"),
    "no layers": says(geometry="0,2,16", layer_xxh3_128=""),
    "another shape of the same size": says(geometry="3,4,8"),
    "many layers": says(geometry="30000,2,16", layer_xxh3_128=",".join(["0" * 32] * 30_000)),
    "a checksum too few": says(layer_xxh3_128=",".join(["0" * 32] * 2)),
    "checksums no text": says(layer_xxh3_128=7),
    "unknown codec": says(key_codec="zip"),
    "codec a path": says(value_codec="../../etc/passwd"),
    "codec a list": says(key_codec=["int8"]),
    "another codec": says(key_codec="f32"),
    "another format": says(format_version="2"),
    "generation below zero": says(generation="-1"),
    "no key": without("key"),
    "no geometry": without("geometry"),
    "negative offset": offsets(-100, 0),
    "overlapping": offsets(0, 10),
    "beyond the end": offsets(0, 1 << 62),
    "offsets swapped": offsets(1184, 0),
    "offsets in words": offsets("0", "1184"),
    "one offset": offsets(0),
    "another shape": lambda table: table[FIRST].update(shape=[1 << 40, 1 << 40]),
    "another type": lambda table: table[FIRST].update(dtype="F64"),
    "a tensor missing": lambda table: table.pop(FIRST),
    "a tensor more": lambda table: table.update(extra={"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}),
    "a tensor under another name": lambda table: table.update(other=table.pop(FIRST)),
}


def forged(lie: Lie) -> bytes:
    block = make_block()
    raw = packed_bytes(block)
    table = header_table(raw[: len(raw) - block.data.nbytes])
    lie(table)
    return forged_header(table)


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_in_one_short_line_and_little_memory(name: str) -> None:
    raw = forged(LIES[name])
    tracemalloc.start()
    try:
        with pytest.raises(BlockDamaged) as caught:
            parse_header(raw, "block")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "checksum" not in str(caught.value), "the forgery itself was clumsy"
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)
    assert peak_bytes < MOST_BYTES


def test_the_forger_is_able() -> None:
    """The truth, forged, is accepted: what is refused above is refused for its lie."""
    header, _ = parse_header(forged(lambda table: None), "block")
    assert header == make_block().header


def believed_file(path: Path, name: str) -> BlockExpectation:
    """A block's bytes behind a header that lies, and a catalog that was made to believe it."""
    block = make_block()
    raw = forged(LIES[name])
    path.write_bytes(raw + block.data.tobytes())
    marker = raw.index(b'"header_xxh3_128":"') + len(b'"header_xxh3_128":"')
    believed = expectation(block).__dict__ | {
        "header_checksum": raw[marker : marker + 32].decode(),
        "header_bytes": len(raw),
        "size_bytes": len(raw) + block.data.nbytes,
    }
    return BlockExpectation(**believed)


@pytest.mark.parametrize("name", ["most tokens", "huge geometry", "another codec"])
def test_a_lying_file_is_refused_even_where_the_catalog_believes_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(BlockDamaged):
        read_block_file(tmp_path / "block", believed_file(tmp_path / "block", name), AlignedBuffers())


@pytest.mark.parametrize("name", ["beyond the end", "negative offset", "another shape", "a tensor missing"])
def test_offsets_that_lie_lead_nowhere(tmp_path: Path, name: str) -> None:
    """A served block lies as its codec lays it out; the table in its header is for other programs."""
    expected = believed_file(tmp_path / "block", name)
    found = read_block_file(tmp_path / "block", expected, AlignedBuffers())
    for ours, theirs in zip(found.decode(), make_block().decode(), strict=True):
        assert ours.equal(theirs)


def test_a_size_the_file_does_not_have_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "block"
    path.write_bytes(packed_bytes(make_block()))
    believed = expectation(make_block()).__dict__ | {"size_bytes": 1 << 50}
    with pytest.raises(BlockDamaged, match="torn"):
        read_block_file(path, BlockExpectation(**believed), AlignedBuffers())


@pytest.mark.parametrize(
    "text", [b"[" * 4000, b"{" * 4000, b'{"a":' * 700, b"null", b"[]", b'"header_xxh3_128":"', b"\xff" * 100, b""]
)
def test_garbage_with_a_right_length_is_refused(text: bytes) -> None:
    raw = (4088).to_bytes(8, "little") + text[:4088].ljust(4088)
    with pytest.raises(BlockDamaged):
        parse_header(raw, "block")


@pytest.mark.parametrize("length", [0, 1, 8, 4095, 4097, LARGEST_HEADER_BYTES + 4096])
def test_a_header_of_no_possible_length_is_refused(length: int) -> None:
    with pytest.raises(BlockDamaged, match="torn"):
        parse_header(bytes(length), "block")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 30_000 + "]" * 30_000,
        "[]",
        '{"__metadata__":[]}',
        '{"__metadata__":null}',
        '{"__metadata__":{}}',
        "{}",
        "NaN",
    ],
    ids=lambda text: text[:20],
)
def test_another_document_with_a_right_checksum_is_refused(text: str) -> None:
    """The checksum's field stands where a reader finds it, and what is around it is no header."""
    joint = text.replace("}", f"{',' if len(text) > 2 else ''}{BLANK_FIELD}}}", 1) if text.endswith("}") else ""
    for document in (f"[{{{BLANK_FIELD}}},{text}]", f'{{"a":{text},{BLANK_FIELD}}}', joint):
        with pytest.raises(BlockDamaged, match="not valid" if document else "checksum"):
            parse_header(sealed(document), "block")
