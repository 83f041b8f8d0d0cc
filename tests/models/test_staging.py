"""Staging: a slot is filled again only when its copy has ended, and a lease may go when `copy` returns."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from models.staging import Lane, PlainLane, SlotStaging, open_staging


class LateCopy:
    """A copy that happens only when somebody waits for it, as late as a device may be."""

    def __init__(self, lane: "LateLane", source: torch.Tensor, target: torch.Tensor) -> None:
        self._lane, self._source, self._target = lane, source, target

    def wait(self) -> None:
        with self._lane.lock_of_copies:
            if self in self._lane.pending:
                self._target.copy_(self._source)
                self._lane.pending.remove(self)


class LateLane(PlainLane):
    """Plain memory, copies as late as they may be; `locked` says what counts as page-locked."""

    def __init__(self, slots: int = 4, locked: bool = False) -> None:
        self.slots, self.locked = slots, locked
        self.pending: list[LateCopy] = []
        self.lock_of_copies = threading.RLock()
        self.most_pending = self.handed_over = 0

    def lock(self, size_bytes: int) -> torch.Tensor:
        if not self.slots:
            raise RuntimeError("page-locked memory is used up\nwith a second line")
        self.slots -= 1
        return torch.zeros(size_bytes, dtype=torch.uint8)

    def is_locked(self, source: torch.Tensor) -> bool:
        return self.locked

    def send(self, source: torch.Tensor, target: torch.Tensor) -> LateCopy:  # type: ignore[override]
        with self.lock_of_copies:
            copy = LateCopy(self, source, target)
            self.pending.append(copy)
            self.most_pending = max(self.most_pending, len(self.pending))
            return copy

    def hand_over(self, target: torch.Tensor) -> None:
        self.handed_over += 1
        for copy in list(self.pending):
            copy.wait()


def sample(size_bytes: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


@pytest.mark.parametrize("size_bytes", [1, 15, 16, 17, 64, 1000])
def test_what_arrives_is_what_was_sent(size_bytes: int) -> None:
    for lane in (PlainLane(), LateLane(2), LateLane(4), LateLane(0), LateLane(locked=True)):
        data = sample(size_bytes)
        assert np.array_equal(SlotStaging(lane, 2, 16).copy(data).numpy(), data)


def test_a_slot_is_not_filled_before_its_copy_has_ended() -> None:
    """Twenty pieces through two slots: each piece must have left its slot before the next one takes it."""
    lane = LateLane()
    data = sample(320)
    assert np.array_equal(SlotStaging(lane, 2, 16).copy(data).numpy(), data)
    assert lane.most_pending == 2
    assert lane.handed_over == 1


@pytest.mark.parametrize(("slots", "locked"), [(4, False), (0, False), (4, True)], ids=["slots", "refused", "locked"])
def test_the_source_may_change_when_copy_returns(slots: int, locked: bool) -> None:
    class Unhanded(LateLane):
        def hand_over(self, target: torch.Tensor) -> None:
            pass

    lane, data = Unhanded(slots, locked), sample(100)
    expected = data.copy()
    copied = SlotStaging(lane, 2, 64).copy(data)
    data.fill(0)
    LateLane.hand_over(lane, copied)
    assert np.array_equal(copied.numpy(), expected)


def test_page_locked_memory_is_sent_without_a_slot() -> None:
    lane = LateLane(locked=True)
    SlotStaging(lane, 2, 16).copy(sample(320))
    assert lane.most_pending == 1


@pytest.mark.parametrize("granted", [0, 1, 3])
def test_refused_page_locked_memory_is_said_and_lived_with(granted: int) -> None:
    staging = SlotStaging(LateLane(granted), 4, 16)
    assert staging.slots == granted
    assert staging.reason == f"{granted} of 4 plain slots, the rest was refused (page-locked memory is used up)"
    data = sample(99)
    assert np.array_equal(staging.copy(data).numpy(), data)
    assert "refused" not in SlotStaging(LateLane(4), 4, 16).reason


def test_a_failed_copy_gives_its_slot_back() -> None:
    class Failing(PlainLane):
        fails = 3

        def send(self, source: torch.Tensor, target: torch.Tensor) -> object:  # type: ignore[override]
            if self.fails:
                self.fails -= 1
                raise RuntimeError("the device is gone")
            return super().send(source, target)

    staging = SlotStaging(Failing(), 2, 16)  # type: ignore[arg-type]
    for _ in range(3):
        with pytest.raises(RuntimeError, match="gone"):
            staging.copy(sample(8))
    assert np.array_equal(staging.copy(sample(40)).numpy(), sample(40))


def test_four_loaders_share_two_slots() -> None:
    lane: Lane = LateLane()
    staging = SlotStaging(lane, 2, 64)
    barrier = threading.Barrier(4)

    def load(seed: int) -> None:
        barrier.wait()
        for turn in range(30):
            data = sample(37 * (turn % 9) + 1, seed + turn)
            assert np.array_equal(staging.copy(data).numpy(), data)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(load, range(0, 400, 100)))


def test_without_a_gpu_the_plain_lane_serves() -> None:
    staging = open_staging("cpu", 3, 128)
    assert staging.reason == "3 plain slots of 128 bytes"
    data = sample(1000)
    assert np.array_equal(staging.copy(data).numpy(), data)


@pytest.mark.parametrize(("slots", "slot_bytes"), [(1, 16), (2, 0)])
def test_slots_that_cannot_overlap_are_refused(slots: int, slot_bytes: int) -> None:
    with pytest.raises(ValueError, match="overlap"):
        SlotStaging(PlainLane(), slots, slot_bytes)
