"""Budgets as people write them, and those the computer grants."""

import psutil
import pytest

from appliance.budgets import TierBudgets, host_budgets, parse_budgets, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1000", 1000), ("4GiB", 4 << 30), ("1.5 MB", 1_500_000), (" 2 kib", 2048), ("7b", 7), ("1TB", 10**12)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "-1", "4 parsec", "1,5GB", "nan", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="no size: write 4GiB"):
        parse_size(text)


def test_budgets() -> None:
    assert parse_budgets("5%,5%,10%") == TierBudgets(0.05, 0.05, 0.1, shares=True)
    assert parse_budgets("1GiB, 0, 2GiB") == TierBudgets(float(1 << 30), 0.0, float(2 << 30))


@pytest.mark.parametrize("text", ["5%", "5%,5%", "5%,5,10%", "60%,30%,20%", "-1%,0%,0%", "x%,0%,0%", "1,2,3,4"])
def test_what_are_no_budgets(text: str) -> None:
    with pytest.raises(ValueError, match=r"no share|no size|write three|at most 100%"):
        parse_budgets(text)


def test_bytes_asked_for_are_taken_as_they_are() -> None:
    found, reason = host_budgets(parse_budgets("1MiB,2MiB,3MiB"), None)
    assert found == {"gpu": 1 << 20, "pinned": 2 << 20, "pageable": 3 << 20}
    assert reason == "asked for"
    assert host_budgets(None, 5)[0] == {"gpu": 0, "pinned": 0, "pageable": 5}


def test_the_default_is_what_the_computer_grants(monkeypatch: pytest.MonkeyPatch) -> None:
    available = psutil.virtual_memory().available
    found, reason = host_budgets(None, None)
    assert 0 < found["pageable"] <= available
    assert (found["gpu"], found["pinned"]) == (0, 0)
    assert "granted as wanted" in reason

    def refuse(size_bytes: int) -> None:
        if size_bytes > 64 << 20:
            raise MemoryError("no more")

    monkeypatch.setattr("storage.tiers.probing.map_pages", refuse)
    found, reason = host_budgets(None, None)
    assert found["pageable"] <= 64 << 20
    assert "were refused (no more)" in reason


def test_shares_bound_the_bytes_too() -> None:
    found, _ = host_budgets(parse_budgets("5%,5%,10%"), None)
    assert found["pageable"] == pytest.approx(2 * found["gpu"], rel=0.01)
    assert found["gpu"] == found["pinned"]
    nothing, _ = host_budgets(parse_budgets("0%,0%,0%"), None)
    assert set(nothing.values()) == {0}
