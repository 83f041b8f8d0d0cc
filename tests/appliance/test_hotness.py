"""The log of uses: batches, a full disk, threads, and what it says before it is written."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from appliance import hotness
from appliance.hotness import HotnessLog
from storage.catalog import Catalog
from storage.errors import DiskFull
from storage.home import Home
from tests.storage.catalog.builders import new_document, open_catalog


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["x", "y", "z"]))
        yield catalog


def full_disk(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the batches that found no room."""
    tried: list[int] = []

    def refuse(_self: Catalog, uses: Sequence[Sequence[int]]) -> None:
        tried.append(len(uses))
        raise DiskFull("no room left here: free some")

    monkeypatch.setattr(Catalog, "record_uses", refuse)
    return tried


def test_a_batch_is_written_when_it_is_full(catalog: Catalog) -> None:
    told = []
    log = HotnessLog(catalog, flush_every=3, flushed=lambda: told.append(catalog.questions()))
    for count in (1, 2):
        log.record([1, 2])
        assert (log.pending, catalog.questions()) == (count, 0)
    log.record([2])
    assert (log.pending, catalog.questions(), told) == (0, 3, [3])
    log.record([3])
    assert log.flush() is None
    assert (catalog.questions(), told) == (4, [3])
    assert log.flush() is None
    assert catalog.questions() == 4


def test_close_writes_what_is_left(catalog: Catalog) -> None:
    log = HotnessLog(catalog)
    log.record([1])
    log.close()
    log.close()
    assert [hot.chunk_id for hot in catalog.hottest(3)] == [1]


def test_a_full_disk_fails_no_question_and_loses_nothing(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    log = HotnessLog(catalog, flush_every=4)
    with monkeypatch.context() as full:
        tried = full_disk(full)
        for number in range(10):
            log.record([1 + number % 3])
        assert tried == [4, 8]  # not at every question
        assert log.flush() == "no room left here: free some"
        assert log.job(threading.Event()) == "no room left here: free some"
        assert log.pending == 10
        log.close()
    log.record([1])
    assert log.flush() is None
    assert (log.pending, catalog.questions()) == (0, 11)
    assert {hot.chunk_id: hot.uses for hot in catalog.hottest(3)} == {1: 5, 2: 3, 3: 3}
    assert catalog.chunk_scores([1])[1] > catalog.chunk_scores([2])[2]


def test_what_no_disk_takes_is_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hotness, "_LONGEST_BACKLOG", 6)
    log = HotnessLog(catalog, flush_every=4)
    with monkeypatch.context() as full:
        full_disk(full)
        for _ in range(20):
            log.record([1])
        assert log.pending <= 6
    assert log.flush() is None
    assert catalog.questions() == 6


def test_a_score_counts_what_is_not_written_yet(catalog: Catalog) -> None:
    log = HotnessLog(catalog)
    assert log.score([1, 2]) == 0
    log.record([1, 3])
    log.record([1, 2])
    assert log.score([1, 2]) == 3
    log.flush()
    assert log.score([1, 2]) == pytest.approx(3, rel=0.01)
    log.record([2])
    assert log.score([2]) == pytest.approx(2, rel=0.01)


def test_threads_lose_nothing(catalog: Catalog) -> None:
    log = HotnessLog(catalog, flush_every=5)

    def ask() -> None:
        for _ in range(50):
            log.record([1, 2])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for _ in range(20):
        log.flush()
    for thread in threads:
        thread.join()
    log.close()
    assert catalog.questions() == 300
    assert {hot.chunk_id: hot.uses for hot in catalog.hottest(3)} == {1: 300, 2: 300}


def test_a_kill_loses_one_batch_at_most(catalog: Catalog, tmp_path: Path) -> None:
    log = HotnessLog(catalog, flush_every=8)
    for _ in range(21):
        log.record([1])
    with Catalog.open(Home(tmp_path), read_only=True) as other:  # as the next process would find it
        assert other.questions() == 16
