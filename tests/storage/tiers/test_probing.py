"""Budgets are what can be had: tried, halved where refused, with a reason."""

from pathlib import Path

import pytest

from storage.tiers import lock_pages, map_pages, probe_budget, reserve_device, within_limit
from storage.tiers.memory_limit import memory_left_bytes

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


def test_a_memory_limit_bounds_what_is_mapped_or_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage.tiers.probing.memory_left_bytes", lambda: 40 * MIB)
    assert (within_limit(30 * MIB), within_limit(50 * MIB)) == (30 * MIB, 40 * MIB)
    budget, reason = probe_budget(64 * MIB, map_pages)
    assert budget == 32 * MIB
    assert reason == f"{64 * MIB} bytes were refused (the memory limit leaves {40 * MIB} bytes)"
    with pytest.raises(MemoryError, match="the memory limit"):  # the kernel would end the process instead
        lock_pages(41 * MIB)
    monkeypatch.setattr("storage.tiers.probing.memory_left_bytes", lambda: None)
    assert within_limit(50 * MIB) == 50 * MIB
    assert probe_budget(64 * MIB, map_pages) == (64 * MIB, "granted as wanted")


NAMES = {
    2: ("memory.max", "memory.current", "inactive_file"),
    1: ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
}


def make_group(folder: Path, version: int, limit: str, used: int, cached: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in zip(NAMES[version], (limit, str(used), ""), strict=True):
        if text:
            (folder / name).write_text(f"{text}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{NAMES[version][2]} {cached}\ninactive_anon 9\n")


@pytest.mark.parametrize("version", [1, 2])
def test_the_tightest_limit_counts_and_cached_files_do_not(tmp_path: Path, version: int) -> None:
    membership = tmp_path / "membership"
    membership.write_text("3:cpuset:/x\n4:memory:/outer/inner\n" if version == 1 else "0::/outer/inner\n")
    root = tmp_path / "memory" if version == 1 else tmp_path
    assert memory_left_bytes(tmp_path, membership) is None
    make_group(root / "outer" / "inner", version, "1000", 300, 100)
    assert memory_left_bytes(tmp_path, membership) == 800
    make_group(root / "outer", version, "900", 700, 50)
    assert memory_left_bytes(tmp_path, membership) == 250
    make_group(root, version, "100", 300, 0)
    assert memory_left_bytes(tmp_path, membership) == 0


def test_no_limit_is_none(tmp_path: Path) -> None:
    membership = tmp_path / "membership"
    assert memory_left_bytes(tmp_path, membership) is None
    membership.write_text("0::/gone/from/here\n")
    make_group(tmp_path, 2, "max", 300, 100)
    assert memory_left_bytes(tmp_path, membership) is None
    make_group(tmp_path, 2, "1000", 300, 100)  # a container's own group, seen as the root
    assert memory_left_bytes(tmp_path, membership) == 800
