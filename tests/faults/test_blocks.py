"""Block files that rot, tear or cannot be read: always BlockDamaged, never another's numbers (DESIGN.md §6)."""

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from storage.blocks import BlockExpectation, parse_header, read_block_file
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.buffers import AlignedBuffers
from storage.errors import BlockDamaged
from tests.storage.blocks.builders import make_block, packed_bytes, same_block, write_block

FLIPPED_BITS = 500
both_ways = pytest.mark.parametrize("direct", [True, False], ids=["direct", "buffered"])


def read(path: Path, expected: BlockExpectation, direct: bool = True) -> None:
    read_block_file(path, expected, AlignedBuffers(), direct)


def refused(path: Path, expected: BlockExpectation, direct: bool = True) -> None:
    """One line that names the file, and the buffer is given back."""
    buffers = AlignedBuffers()
    spare = buffers.take(expected.size_bytes)
    address = spare.ctypes.data
    buffers.give(spare)
    with pytest.raises(BlockDamaged) as caught:
        read_block_file(path, expected, buffers, direct)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(path.name)
    assert buffers.take(expected.size_bytes).ctypes.data == address, "the buffer was lost"


def test_every_byte_of_a_header_matters() -> None:
    block = make_block()
    raw = packed_bytes(block)
    header = bytearray(raw[: len(raw) - block.data.nbytes])
    parse_header(bytes(header), "name")
    for place in range(len(header)):
        bit = 1 << (place % 8)
        header[place] ^= bit
        with pytest.raises(BlockDamaged):
            parse_header(bytes(header), "name")
        header[place] ^= bit


def test_every_bit_of_a_headers_beginning_matters() -> None:
    """Length, braces and the self-checksum's own digits."""
    raw = packed_bytes(make_block())[:ALIGNMENT_BYTES]
    for bit in range(8 * 200):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << (bit % 8)
        with pytest.raises(BlockDamaged):
            parse_header(bytes(flipped), "name")


@pytest.mark.parametrize("codec", ["int8", "f32"])
def test_flipped_bits_of_the_file_are_found(tmp_path: Path, codec: str) -> None:
    block = make_block(codec=codec)
    path, expected = write_block(tmp_path, block)
    chance = random.Random(5)
    places = [chance.randrange(8 * expected.header_bytes) for _ in range(50)]
    places += [chance.randrange(8 * expected.header_bytes, 8 * expected.size_bytes) for _ in range(FLIPPED_BITS)]
    places += [8 * expected.size_bytes - 1, 8 * expected.header_bytes]
    buffers = AlignedBuffers()
    with path.open("r+b", buffering=0) as file:
        for place in places:
            original = os.pread(file.fileno(), 1, place // 8)
            os.pwrite(file.fileno(), bytes([original[0] ^ (1 << (place % 8))]), place // 8)
            with pytest.raises(BlockDamaged):
                read_block_file(path, expected, buffers, direct=False)
            os.pwrite(file.fileno(), original, place // 8)
    assert same_block(read_block_file(path, expected, buffers), block)


@both_ways
def test_every_truncation_is_found(tmp_path: Path, direct: bool) -> None:
    path, expected = write_block(tmp_path, make_block())
    whole = path.read_bytes()
    lengths = [*range(0, len(whole), ALIGNMENT_BYTES), 1, 7, 8, 9, 511, 4097, len(whole) - 1, len(whole) - 4095]
    for length in lengths:
        path.write_bytes(whole[:length])
        refused(path, expected, direct)
    path.write_bytes(whole + b"\0" * ALIGNMENT_BYTES)
    refused(path, expected, direct)
    path.write_bytes(whole)
    read(path, expected, direct)


@pytest.mark.parametrize("zeroed", [slice(0, 4096), slice(4096, 8192), slice(-4096, None), slice(None)])
def test_pages_of_zeros_are_found(tmp_path: Path, zeroed: slice) -> None:
    """What a crash of the machine leaves where data never reached the disk."""
    path, expected = write_block(tmp_path, make_block())
    content = bytearray(path.read_bytes())
    content[zeroed] = bytes(len(content[zeroed]))
    path.write_bytes(content)
    refused(path, expected)


def test_swapped_files_are_found(tmp_path: Path) -> None:
    first, of_first = write_block(tmp_path, make_block("a" * 64))
    second, of_second = write_block(tmp_path, make_block("b" * 64, seed=1))
    assert of_first.size_bytes == of_second.size_bytes
    first.rename(tmp_path / "held")
    second.rename(first)
    (tmp_path / "held").rename(second)
    refused(first, of_first)
    refused(second, of_second)


def test_a_file_that_is_whole_but_not_the_promised_one_is_found(tmp_path: Path) -> None:
    """Each promise alone, with the header checksum of the file itself: the other fields must be looked at."""
    path, expected = write_block(tmp_path, make_block())
    read(path, expected)
    for wrong in (
        replace(expected, key="c" * 64),
        replace(expected, fingerprint="another model"),
        replace(expected, codec="bf16"),
        replace(expected, generation=1),
        replace(expected, tokens=expected.tokens - 1),
        replace(expected, header_checksum="0" * 32),
        replace(expected, header_bytes=expected.header_bytes + ALIGNMENT_BYTES),
        replace(expected, header_bytes=100),
        replace(expected, header_bytes=0),
        replace(expected, header_bytes=expected.size_bytes),
        replace(expected, size_bytes=expected.size_bytes + ALIGNMENT_BYTES),
        replace(expected, size_bytes=100),
        replace(expected, size_bytes=0),
    ):
        with pytest.raises(BlockDamaged):
            read(path, wrong)


@both_ways
def test_what_lies_there_instead_of_a_file_is_found(tmp_path: Path, direct: bool) -> None:
    path, expected = write_block(tmp_path, make_block())
    path.rename(tmp_path / "elsewhere")
    refused(path, expected, direct)
    path.symlink_to(tmp_path / "elsewhere")
    refused(path, expected, direct)
    path.unlink()
    path.mkdir()
    refused(path, expected, direct)
    path.rmdir()
    os.mkfifo(path)
    refused(path, expected, direct)


def test_a_file_system_without_direct_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    block = make_block()
    path, expected = write_block(tmp_path, block)
    opened, system_open = [], os.open

    def buffered_only(name: Path, flags: int, *rest: int) -> int:
        opened.append(bool(flags & os.O_DIRECT))
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "no O_DIRECT here")
        return system_open(name, flags, *rest)

    monkeypatch.setattr(os, "open", buffered_only)
    assert same_block(read_block_file(path, expected, AlignedBuffers()), block)
    assert opened == [True, False]


def test_a_direct_read_that_is_refused_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems open with O_DIRECT and refuse the read."""
    block = make_block()
    path, expected = write_block(tmp_path, block)
    calls, system_read = [], os.preadv

    def first_fails(descriptor: int, buffers: Sequence[memoryview], offset: int) -> int:
        calls.append(offset)
        if len(calls) == 1:
            raise OSError(errno.EINVAL, "not aligned enough")
        return system_read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", first_fails)
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert same_block(read_block_file(path, expected, AlignedBuffers()), block)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@both_ways
@pytest.mark.parametrize("piece", [1000, ALIGNMENT_BYTES])
def test_short_reads_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, direct: bool) -> None:
    block = make_block()
    path, expected = write_block(tmp_path, block)
    system_read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: system_read(fd, [memoryview(views[0])[:piece]], at))
    assert same_block(read_block_file(path, expected, AlignedBuffers(), direct), block)


@both_ways
def test_a_file_that_shrinks_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, direct: bool) -> None:
    path, expected = write_block(tmp_path, make_block())
    monkeypatch.setattr(os, "preadv", lambda *_: 0)
    refused(path, expected, direct)


@pytest.mark.parametrize("code", [errno.EIO, errno.EUCLEAN, errno.EBADMSG])
def test_a_disk_that_cannot_read_costs_the_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    path, expected = write_block(tmp_path, make_block())

    def failing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "preadv", failing)
    refused(path, expected)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_too_many_open_files_is_not_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    path, expected = write_block(tmp_path, make_block())

    def failing(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "open", failing)
    with pytest.raises(OSError, match=os.strerror(code)) as caught:
        read(path, expected)
    assert caught.value.errno == code
    assert path.exists()
