"""Reading a block file: one sequential read into an aligned buffer, checked whole before anything is handed on."""

import errno
import os
import stat
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
# Errors that are about this process, not about the file: every other block would fail the same way.
_OF_THE_PROCESS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


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
    try:
        buffer = _read_whole(path, size, buffers, direct)
    except FileNotFoundError as error:
        raise BlockDamaged(f"{path.name}: the file is missing; the block is computed again") from error
    except OSError as error:
        if error.errno in _OF_THE_PROCESS:
            raise
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise BlockDamaged(f"{path.name}: cannot be read ({reason}); the block is computed again") from error
    try:
        return _check(path.name, buffer, expected)
    except BaseException:
        buffers.give(buffer)
        raise


def _read_whole(path: Path, size_bytes: int, buffers: AlignedBuffers, direct: bool) -> np.ndarray:
    """The file's bytes in a buffer; memory is taken only once the file is known to have this size."""
    # O_NONBLOCK, because opening a pipe that lies there would wait for its other end; a file does not mind.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | os.O_DIRECT if direct else flags)
    except OSError as error:
        if direct and error.errno in _REFUSES_DIRECT:
            return _read_whole(path, size_bytes, buffers, direct=False)
        raise
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size != size_bytes:
            raise BlockDamaged(f"{path.name}: the file is torn; the block is computed again")
        buffer = buffers.take(size_bytes)
        try:
            _fill(buffer, descriptor, path.name)
        except BaseException as error:
            buffers.give(buffer)
            if direct and isinstance(error, OSError) and error.errno in _REFUSES_DIRECT:
                return _read_whole(path, size_bytes, buffers, direct=False)
            raise
        return buffer
    finally:
        os.close(descriptor)


def _fill(buffer: np.ndarray, descriptor: int, name: str) -> None:
    done = 0
    while done < buffer.nbytes:
        count = os.preadv(descriptor, [buffer.data[done:]], done)
        if count <= 0:
            raise BlockDamaged(f"{name}: the file ends early; the block is computed again")
        done += count


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
