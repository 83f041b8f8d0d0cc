"""Page-aligned memory that is used again: whole pages, never twice at once, bounded."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from storage.blocks.layout import ALIGNMENT_BYTES
from storage.buffers import AlignedBuffers

PAGE = ALIGNMENT_BYTES


@pytest.mark.parametrize("size_bytes", [1, PAGE - 1, PAGE, PAGE + 1, 5 * PAGE, 123_457])
def test_a_buffer_begins_on_a_page_and_has_its_size(size_bytes: int) -> None:
    buffer = AlignedBuffers().take(size_bytes)
    assert buffer.nbytes == size_bytes
    assert buffer.dtype == np.uint8
    assert buffer.ctypes.data % PAGE == 0
    buffer[:] = 7


def test_memory_given_back_is_used_again() -> None:
    buffers = AlignedBuffers()
    first = buffers.take(3 * PAGE)
    address = first.ctypes.data
    buffers.give(first)
    second, third = buffers.take(3 * PAGE), buffers.take(3 * PAGE)
    assert second.ctypes.data == address
    assert third.ctypes.data != address, "one buffer was handed out twice"
    buffers.give(second)
    assert buffers.take(2 * PAGE).ctypes.data != address, "a buffer of another size was cut up"
    assert buffers.take(3 * PAGE).ctypes.data == address


def test_spare_memory_is_bounded() -> None:
    buffers = AlignedBuffers(spare_bytes=2 * PAGE)
    taken = [buffers.take(PAGE) for _ in range(3)]
    addresses = {buffer.ctypes.data for buffer in taken}
    for buffer in taken:
        buffers.give(buffer)
    again = [buffers.take(PAGE) for _ in range(3)]
    assert len({buffer.ctypes.data for buffer in again[:2]} & addresses) == 2
    buffers.give(again[2])  # there is room again
    assert buffers.take(PAGE).ctypes.data == again[2].ctypes.data


@pytest.mark.parametrize("stranger", [np.zeros(PAGE + 8, np.uint8)[8:], np.zeros(100, np.uint8)], ids=["off", "part"])
def test_memory_that_is_no_page_is_not_kept(stranger: np.ndarray) -> None:
    buffers = AlignedBuffers()
    buffers.give(stranger)
    assert buffers.take(PAGE).ctypes.data != stranger.ctypes.data


def test_threads_never_share_a_buffer() -> None:
    buffers = AlignedBuffers()
    start = threading.Barrier(4)

    def work(mark: int) -> bool:
        start.wait()
        whole = True
        for _ in range(300):
            buffer = buffers.take(PAGE)
            buffer[:] = mark
            whole = whole and bool((buffer == mark).all())
            buffers.give(buffer)
        return whole

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(4)))
