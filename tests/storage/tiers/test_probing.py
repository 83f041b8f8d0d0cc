"""Budgets are what can be had: tried, halved where refused, with a reason."""

import pytest

from storage.tiers import map_pages, probe_budget, reserve_device

MIB = 1 << 20


@pytest.mark.parametrize("refusal", [MemoryError(), OSError("no"), RuntimeError("CUDA out of memory\nTried")])
@pytest.mark.parametrize(("there", "had"), [(1024, 1024), (1023, 512), (300, 256), (16, 16), (15, 0), (0, 0)])
def test_halved_until_it_is_there(there: int, had: int, refusal: Exception) -> None:
    def allocate(size_bytes: int) -> None:
        if size_bytes > there * MIB:
            raise refusal

    budget, reason = probe_budget(1024 * MIB, allocate)
    assert budget == had * MIB
    assert "\n" not in reason
    assert ("refused" in reason) == (had < 1024)


def test_little_is_tried_once_and_nothing_never() -> None:
    asked: list[int] = []
    assert probe_budget(4096, asked.append)[0] == 4096
    assert probe_budget(0, asked.append) == (0, "none wanted")
    assert asked == [4096]


def test_plain_memory_is_mapped_not_touched() -> None:
    assert probe_budget(64 * MIB, map_pages)[0] == 64 * MIB
    budget, reason = probe_budget(1 << 62, map_pages)
    assert budget < 1 << 50
    assert "refused" in reason


def test_a_device_is_asked() -> None:
    assert probe_budget(MIB, reserve_device("cpu"))[0] == MIB
    assert probe_budget(1 << 60, reserve_device("cpu"))[0] < 1 << 60
