"""Reading a block file: one sequential read into an aligned buffer, checked whole before anything is handed on."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from storage.blocks.base import EncodedBlock
from storage.blocks.encode import layer_checksums
from storage.blocks.header import parse_header
from storage.blocks.layout import ALIGNMENT_BYTES
from storage.buffers import AlignedBuffers
from storage.errors import BlockDamaged

# Errors that say "this file system has no O_DIRECT", not "this file is bad".
_REFUSES_DIRECT = (errno.EINVAL, errno.ENOTSUP)


@dataclass(frozen=True)
class BlockExpectation:
    """What the catalog promises of a file. A file that differs in any point is damaged."""

    key: str
    fingerprint: str
    codec: str
    generation: int
    tokens: int
    size_bytes: int
    header_bytes: int
    header_checksum: str


def read_block_file(
    path: Path, expected: BlockExpectation, buffers: AlignedBuffers, direct: bool = True
) -> EncodedBlock:
    """The block of a file, or BlockDamaged: missing, torn, flipped (header or data), or another block's.

    `direct` reads past the page cache (O_DIRECT) where the file system allows it. Raises OSError only for errors that
    say nothing of the file, such as too many open files.
    """
    size = expected.size_bytes
    if size % ALIGNMENT_BYTES or not 0 < expected.header_bytes < size:
        raise BlockDamaged(f"{path.name}: the catalog's sizes are not those of a block; the block is computed again")
    buffer = buffers.take(size)
    try:
        _read_whole(path, buffer, direct)
        block = _check(path.name, buffer, expected)
    except BaseException:
        buffers.give(buffer)
        raise
    return block


def _read_whole(path: Path, buffer: np.ndarray, direct: bool) -> None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = _open(path, flags, direct)
    except FileNotFoundError as error:
        raise BlockDamaged(f"{path.name}: the file is missing; the block is computed again") from error
    try:
        if os.fstat(descriptor).st_size != buffer.nbytes:
            raise BlockDamaged(f"{path.name}: the file is torn; the block is computed again")
        done = 0
        while done < buffer.nbytes:
            count = os.preadv(descriptor, [buffer.data[done:]], done)
            if count <= 0:
                raise BlockDamaged(f"{path.name}: the file ends early; the block is computed again")
            done += count
    except OSError as error:
        if direct and error.errno in _REFUSES_DIRECT:
            _read_whole(path, buffer, direct=False)
            return
        if error.errno == errno.EIO:
            raise BlockDamaged(f"{path.name}: the disk cannot read it; the block is computed again") from error
        raise
    finally:
        os.close(descriptor)


def _open(path: Path, flags: int, direct: bool) -> int:
    if direct:
        try:
            return os.open(path, flags | os.O_DIRECT)
        except OSError as error:
            if error.errno not in _REFUSES_DIRECT:
                raise
    return os.open(path, flags)


def _check(name: str, buffer: np.ndarray, expected: BlockExpectation) -> EncodedBlock:
    header, checksum = parse_header(buffer[: expected.header_bytes].tobytes(), name)
    if checksum != expected.header_checksum:
        raise BlockDamaged(f"{name}: not the file the catalog knows; the block is computed again")
    promised = (expected.key, expected.fingerprint, expected.codec, expected.generation, expected.tokens)
    if (header.key, header.fingerprint, header.codec, header.generation, header.tokens) != promised:
        raise BlockDamaged(f"{name}: belongs to another key; the block is computed again")
    data = buffer[expected.header_bytes :]
    if data.nbytes != header.layout.data_bytes:
        raise BlockDamaged(f"{name}: the file is torn; the block is computed again")
    for layer, (found, stored) in enumerate(zip(layer_checksums(data, header), header.layer_checksums, strict=True)):
        if found != stored:
            raise BlockDamaged(f"{name}: checksum of layer {layer} does not match; the block is computed again")
    if data[header.layout.body_bytes :].any():
        raise BlockDamaged(f"{name}: padding is not empty; the block is computed again")
    return EncodedBlock(header, data, buffer)
