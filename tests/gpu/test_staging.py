"""Staging on a CUDA device: streams, events and page-locked memory do what the plain twin promises."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from models.staging import open_staging
from models.staging.cuda import CudaLane
from storage.tiers import LockedBuffers
from tests.gpu.marks import NEEDS_CUDA

pytestmark = NEEDS_CUDA


def sample(size_bytes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


@pytest.mark.parametrize("size_bytes", [1, 4095, 4096, 100_003, 9 << 20])
def test_what_arrives_is_what_was_sent(size_bytes: int) -> None:
    staging = open_staging("cuda", 2, 1 << 20)
    assert staging.slots == 2
    data = sample(size_bytes, size_bytes)
    expected = data.copy()
    moved = staging.copy(data)
    data.fill(0)
    assert np.array_equal(moved.cpu().numpy(), expected)


def test_page_locked_memory_is_known_and_read_before_copy_returns() -> None:
    locked = LockedBuffers(spare_bytes=0).take(8 << 20)
    assert CudaLane("cuda").is_locked(torch.from_numpy(locked))
    assert CudaLane("cuda").is_locked(torch.from_numpy(locked[4096 : 4096 + 100]))
    assert not CudaLane("cuda").is_locked(torch.from_numpy(np.zeros(4096, dtype=np.uint8)))
    locked[:] = sample(locked.nbytes, 1)
    expected = locked.copy()
    moved = open_staging("cuda").copy(locked)
    locked.fill(0)
    assert np.array_equal(moved.cpu().numpy(), expected)


def test_four_loaders_while_the_device_is_busy() -> None:
    """What a loader's stream does with the bytes waits for them, and their memory is not given to another too soon."""
    staging = open_staging("cuda", 3, 1 << 18)
    busy = torch.randn(4096, 4096, device="cuda")
    for _ in range(20):
        busy = (busy @ busy).clamp_(-1, 1)

    def load(seed: int) -> None:
        sums = []
        for turn in range(40):
            data = sample(1000 + 40_009 * (turn % 17), seed + turn)
            expected = int(data.sum(dtype=np.int64))
            sums.append((staging.copy(data).sum(dtype=torch.int64), expected))
            data.fill(0)
        for found, expected in sums:
            assert int(found) == expected

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(load, range(0, 4000, 1000)))


def test_refused_page_locked_memory_is_lived_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: CudaLane, size_bytes: int) -> torch.Tensor:
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(CudaLane, "lock", refuse)
    staging = open_staging("cuda")
    assert "refused (CUDA error: out of memory)" in staging.reason
    data = sample(1 << 20, 3)
    assert np.array_equal(staging.copy(data).cpu().numpy(), data)
