"""Small buffers share huge pages: apart from each other, and given back to the system one by one."""

import gc
from pathlib import Path

import numpy as np
import pytest

from storage.buffers import AlignedBuffers
from storage.slabs import HUGE_PAGE_BYTES, SLAB_BYTES, Slabs

PAGE = 4096
SIZE = 300 * PAGE


def resident(pieces: list[np.ndarray]) -> int:
    """Bytes of this process in memory where the pieces lie, from the kernel's own page map (8 bytes a page)."""
    count = 0
    with Path("/proc/self/pagemap").open("rb", buffering=0) as pagemap:
        for piece in pieces:
            pagemap.seek(piece.ctypes.data // PAGE * 8)
            entries = np.frombuffer(pagemap.read(piece.nbytes // PAGE * 8), np.uint64)
            count += int((entries >> np.uint64(63)).sum()) * PAGE
    return count


def test_pieces_lie_apart_on_pages() -> None:
    slabs = Slabs()
    pieces = [slabs.cut(size) for size in (SIZE, 16 * PAGE, SIZE, SLAB_BYTES - PAGE, SIZE)]
    for mark, piece in enumerate(pieces):
        assert piece.ctypes.data % PAGE == 0
        piece[:] = mark
    assert all((piece == mark).all() for mark, piece in enumerate(pieces))
    assert pieces[1].ctypes.data == pieces[0].ctypes.data + SIZE
    assert pieces[3].ctypes.data % HUGE_PAGE_BYTES == 0, "what does not fit begins a new slab"


def test_a_piece_that_is_freed_leaves_memory_and_its_neighbours_stay() -> None:
    slabs = Slabs()
    one, two, three = (slabs.cut(SIZE) for _ in range(3))
    for mark, piece in enumerate((one, two, three)):
        piece[:] = mark + 1
    address = two.ctypes.data
    assert resident([two]) == SIZE
    del two, piece
    gc.collect()
    page = np.ndarray(SIZE, np.uint8, one.base, address - one.ctypes.data + offset_in_base(one))
    assert resident([page]) == 0
    assert (one == 1).all()
    assert (three == 3).all()


def mapping_of(buffer: np.ndarray) -> object:
    """The mapping behind a buffer that was handed out."""
    whole = buffer.base
    assert isinstance(whole, np.ndarray)
    assert isinstance(whole.base, memoryview)
    return whole.base.obj


def offset_in_base(piece: np.ndarray) -> int:
    assert isinstance(piece.base, memoryview)
    return piece.ctypes.data - np.frombuffer(piece.base, np.uint8).ctypes.data


@pytest.mark.parametrize(("size_bytes", "together"), [(SIZE, True), (4 * PAGE, False), (HUGE_PAGE_BYTES, False)])
def test_buffers_smaller_than_a_huge_page_are_cut_and_used_again(size_bytes: int, together: bool) -> None:
    buffers = AlignedBuffers()
    first, second = buffers.take(size_bytes), buffers.take(size_bytes)
    assert (mapping_of(first) is mapping_of(second)) is together
    address = first.ctypes.data
    buffers.give(first)
    assert buffers.take(size_bytes).ctypes.data == address


def test_a_slab_that_is_refused_is_a_memory_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr("storage.slabs.mmap.mmap", refuse)
    with pytest.raises(MemoryError, match="cannot be mapped"):
        AlignedBuffers().take(SIZE)
