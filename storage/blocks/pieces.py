"""A file into a buffer, piece by piece in order, the next pieces under way while one is worked on."""

import errno
import fcntl
import os
from collections import deque
from collections.abc import Generator
from concurrent.futures import Executor, Future, wait
from itertools import islice, pairwise

import numpy as np

from storage.blocks.layout import ALIGNMENT_BYTES

# Errors that say "this file system has no O_DIRECT", not "this file is bad".
REFUSES_DIRECT = (errno.EINVAL, errno.ENOTSUP)
# Measured with blocks of 2.7 and 5 MB: 512 KiB is slower than reading the whole at once, 1 MiB is not, alone and eight
# blocks at a time, and its first layers are there in a fraction of the time.
PIECE_BYTES = 1 << 20
PIECES_AHEAD = 4


def arrivals(
    descriptor: int, buffer: np.ndarray, first_bytes: int, readers: Executor | None
) -> Generator[int, None, None]:
    """Fill `buffer`, uint8, from the file; yields up to where its bytes have arrived, at first past `first_bytes`.

    The calling thread reads the first piece, `readers` the others, or the calling thread where there are none. Nobody
    writes to the buffer any more once the generator is closed. Raises OSError, and EOFError where the file ends early.
    """
    pieces = _pieces(buffer.nbytes, first_bytes)
    if readers is None or len(pieces) == 1:
        for begin, end in pieces:
            _fill(descriptor, buffer, begin, end)
            yield end
        return
    (begin, end), *others = pieces
    # Nothing is submitted before it is asked for, and what is submitted is `PIECES_AHEAD` long at most.
    coming = ((readers.submit(_fill, descriptor, buffer, *piece), piece[1]) for piece in others)
    ahead: deque[tuple[Future[None], int]] = deque()
    try:
        ahead.extend(islice(coming, PIECES_AHEAD))
        _fill(descriptor, buffer, begin, end)
        yield end
        while ahead:
            future, end = ahead[0]
            future.result()
            ahead.popleft()
            ahead.extend(islice(coming, 1))
            yield end
    finally:
        for future, _ in ahead:
            future.cancel()
        wait([future for future, _ in ahead])


def _pieces(size_bytes: int, first_bytes: int) -> list[tuple[int, int]]:
    """Begin and end of each piece: pages, about `PIECE_BYTES` each and never less; a small file is one."""
    count = max(1, size_bytes // PIECE_BYTES)
    step = -(-size_bytes // count // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    ends = [end for end in range(step, size_bytes, step) if end > first_bytes]
    return list(pairwise([0, *ends, size_bytes]))


def _fill(descriptor: int, buffer: np.ndarray, begin: int, end: int) -> None:
    done = begin
    while done < end:
        try:
            count = os.preadv(descriptor, [buffer.data[done:end]], done)
        except OSError as error:
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            if error.errno not in REFUSES_DIRECT or not flags & os.O_DIRECT:
                raise
            # Some file systems open with O_DIRECT and refuse the read: on from here through the page cache.
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_DIRECT)
            continue
        if count <= 0:
            raise EOFError
        done += count
