"""Page-aligned memory that is used again: whole pages, never twice at once, bounded."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from storage.blocks.layout import ALIGNMENT_BYTES
from storage.buffers import AlignedBuffers, capacity_bytes, map_aligned
from storage.slabs import HUGE_PAGE_BYTES

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


def test_spare_memory_of_sizes_nobody_asks_for_makes_room() -> None:
    buffers = AlignedBuffers(spare_bytes=8 * PAGE)
    for pages in (4, 2, 2, 6):  # 4 was used longest ago, then 2
        buffers.give(buffers.take(pages * PAGE))
    used, other = buffers.take(6 * PAGE), buffers.take(2 * PAGE)
    addresses = used.ctypes.data, other.ctypes.data
    buffers.give(other)
    buffers.give(used)
    for _ in range(3):
        again = buffers.take(6 * PAGE), buffers.take(2 * PAGE)
        assert tuple(buffer.ctypes.data for buffer in again) == addresses, "the spare memory was not used again"
        for buffer in again:
            buffers.give(buffer)
    assert buffers.drop_spare() == 8 * PAGE


def test_memory_larger_than_all_spare_drops_none() -> None:
    buffers = AlignedBuffers(spare_bytes=2 * PAGE)
    kept = buffers.take(2 * PAGE)
    buffers.give(kept)
    buffers.give(buffers.take(3 * PAGE))
    assert buffers.take(2 * PAGE).ctypes.data == kept.ctypes.data


def test_memory_fits_blocks_of_about_the_same_size() -> None:
    """Chunks differ by a few tokens; each with memory of its own would be a page fault every 4 KiB."""
    buffers = AlignedBuffers()
    first = buffers.take(1000 * PAGE)
    first[:] = 1
    address = first.ctypes.data
    buffers.give(first)
    second = buffers.take(1005 * PAGE + 5)
    assert second.ctypes.data == address
    assert second.nbytes == 1005 * PAGE + 5
    second[:] = 2
    buffers.give(second)
    assert buffers.take(1001 * PAGE).ctypes.data == address


@pytest.mark.parametrize("size_bytes", [HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + PAGE, 5 * HUGE_PAGE_BYTES + 7 * PAGE])
def test_large_memory_begins_on_a_huge_page(size_bytes: int) -> None:
    buffer = map_aligned(size_bytes)
    assert buffer.nbytes == size_bytes
    assert buffer.ctypes.data % HUGE_PAGE_BYTES == 0
    buffer[:] = 3
    assert buffer.min() == 3


def test_a_mapping_that_is_refused_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="cannot be mapped"):
        map_aligned(1 << 60)


@pytest.mark.parametrize("size_bytes", [1, PAGE, 15 * PAGE, 17 * PAGE + 1, 1_000_003, 5_079_040, 123_456_789])
def test_little_is_added(size_bytes: int) -> None:
    capacity = capacity_bytes(size_bytes)
    assert capacity % PAGE == 0
    assert size_bytes <= capacity <= size_bytes * 17 / 16 + PAGE
    assert capacity_bytes(capacity) == capacity


def test_spare_memory_is_given_up_before_a_take_is_refused() -> None:
    class Small(AlignedBuffers):
        left = 2

        def allocate(self, size_bytes: int) -> np.ndarray:
            if not self.left:
                raise MemoryError
            self.left -= 1
            return super().allocate(size_bytes)

        def drop_spare(self) -> int:
            dropped = super().drop_spare()
            self.left += dropped // PAGE
            return dropped

    buffers = Small()
    one, two = buffers.take(PAGE), buffers.take(PAGE)
    with pytest.raises(MemoryError):
        buffers.take(2 * PAGE)
    buffers.give(one)
    assert buffers.take(2 * PAGE).nbytes == 2 * PAGE
    with pytest.raises(MemoryError):
        buffers.take(PAGE)
    buffers.give(two)
    assert buffers.take(PAGE).ctypes.data == two.ctypes.data


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
