"""Background work: jobs in order, waiting KV; yields to questions, survives failures, ends on close."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance.idle import IdleWork
from appliance.service import Appliance
from models.reader import ChunkReader
from storage.errors import DiskFull, StorageError
from storage.store import BlockStore
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import files_of, ready_blocks

PATIENCE_S = 10.0


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.01)


def without_kv(appliance: Appliance) -> int:
    return int(appliance.status()["chunks_without_kv"])


def test_waiting_kv_is_computed(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    report = appliance.ingest([sample_files], kv="idle")
    assert without_kv(appliance) == report.chunks
    expected = appliance.answer(QUESTION, strategy="full", max_new_tokens=8).answer_ids
    appliance.start_idle_work()
    appliance.start_idle_work()  # once is enough
    wait_for(lambda: without_kv(appliance) == 0)
    assert len(reads) == len(set(reads)) == report.chunks
    tiers = appliance.answer(QUESTION, strategy="reuse", max_new_tokens=8).tiers
    assert sum(tiers.values()) == 4
    assert tiers.keys() <= {"disk", "pageable"}  # idle work goes on, and brings what was asked for to memory
    assert appliance.answer(QUESTION, strategy="full", max_new_tokens=8).answer_ids == expected


def test_an_ingest_wakes_it(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    appliance.start_idle_work()
    time.sleep(0.05)
    report = appliance.ingest([sample_files], kv="idle")
    wait_for(lambda: without_kv(appliance) == 0)
    assert len(reads) == report.chunks


def test_off_is_never_computed_ahead(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    report = appliance.ingest([sample_files / "pump.txt"], kv="off")
    other = appliance.ingest([sample_files / "rules.md"], kv="idle")
    appliance.start_idle_work()

    def own() -> int:
        return sum(row.context == "head" for row in ready_blocks(appliance.settings.home))

    wait_for(lambda: own() == other.chunks)
    appliance.close()
    assert len(reads) == own() == other.chunks
    assert report.chunks > 0


def test_a_question_goes_before_the_next_chunk(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appliance.ingest([sample_files], kv="idle")
    appliance.prepare("default")
    began, let_go, order = threading.Event(), threading.Event(), list[str]()
    block = ChunkReader.block

    def slow(self: ChunkReader, *arguments: Any) -> Any:
        if threading.current_thread().name == "idle-kv":
            order.append("chunk")
            began.set()
            let_go.wait(PATIENCE_S)
        return block(self, *arguments)

    monkeypatch.setattr(ChunkReader, "block", slow)
    appliance.start_idle_work()
    assert began.wait(PATIENCE_S)

    def ask() -> None:
        appliance.answer(QUESTION, strategy="full", max_new_tokens=4)
        order.append("answer")

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    wait_for(lambda: appliance.turns.wanted)
    let_go.set()
    asking.join(PATIENCE_S)
    wait_for(lambda: without_kv(appliance) == 0)
    assert order[:2] == ["chunk", "answer"] or order[:3] == ["chunk", "answer", "chunk"]
    assert order.index("answer") == 1


@pytest.mark.parametrize("error", [DiskFull("no room left here: free some"), StorageError("the disk is odd: check it")])
def test_a_failure_does_not_end_it(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch, error: StorageError
) -> None:
    with monkeypatch.context() as broken:

        def refuse(*_arguments: object) -> None:
            raise error

        broken.setattr(BlockStore, "publish", refuse)
        appliance.ingest([sample_files], kv="idle")
        appliance.start_idle_work()
        idle = appliance._idle
        assert idle is not None
        wait_for(lambda: idle.failure == str(error))
        assert appliance.answer(QUESTION, max_new_tokens=4).tiers == {"computed": 4}
    appliance.ingest([sample_files])  # wakes it
    wait_for(lambda: without_kv(appliance) == 0)
    wait_for(lambda: idle.failure is None)


@pytest.mark.parametrize(
    "error", [OSError(24, "Too many open files"), RuntimeError("CUDA out of memory.\nTried to allocate 2 GiB")]
)
def test_what_the_system_refuses_is_told_and_counted(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    appliance.ingest([sample_files], kv="idle")
    with monkeypatch.context() as broken:

        def refuse(*_arguments: object) -> None:
            raise error

        broken.setattr(ChunkReader, "block", refuse)
        assert appliance.status()["idle_failure"] is None
        appliance.start_idle_work()
        wait_for(lambda: bool(appliance.status()["counters"].get("idle_failures")))
        told = appliance.status()["idle_failure"]
    assert "Too many open files" in told or "CUDA out of memory. Tried" in told
    assert "\n" not in told
    appliance.ingest([sample_files], kv="idle")  # wakes it: it lives on
    wait_for(lambda: without_kv(appliance) == 0)
    wait_for(lambda: appliance.status()["idle_failure"] is None)
    assert appliance.status()["counters"]["idle_failures"] == 1


def test_close_stops_after_the_chunk_in_hand(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appliance.ingest([sample_files], kv="idle")
    began = threading.Event()
    block = ChunkReader.block

    def slow(self: ChunkReader, *arguments: Any) -> Any:
        began.set()
        time.sleep(0.2)
        return block(self, *arguments)

    monkeypatch.setattr(ChunkReader, "block", slow)
    appliance.start_idle_work()
    assert began.wait(PATIENCE_S)
    appliance.close()
    blocks = ready_blocks(appliance.settings.home)
    assert len(blocks) in (1, 2)
    assert set(files_of(appliance.home.blocks)) == {row.file for row in blocks}
    appliance.close()  # safe to repeat


def test_what_a_kill_left_is_finished(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    """`serve` after an `ingest --kv now` that was killed before its KV was there."""
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr("appliance.ingest.kv.KvIngest.pending", lambda *_: [])
        report = appliance.ingest([sample_files], kv="now")
    assert reads == []
    appliance.start_idle_work()
    wait_for(lambda: without_kv(appliance) == 0)
    assert len(reads) == report.chunks


class Rounds:
    """Two jobs that note when they ran; the first can fail or hold."""

    def __init__(self, quiet_s: float = 60.0) -> None:
        self.ran: list[str] = []
        self.counted: list[str] = []
        self.error: Exception | None = None
        self.said: str | None = None
        self.held = threading.Event()
        self.held.set()
        self.work = IdleWork([self._first, self._second], self.counted.append, quiet_s)

    def _first(self, _stop: threading.Event) -> str | None:
        self.ran.append("first")
        self.held.wait(PATIENCE_S)
        if self.error is not None:
            raise self.error
        return self.said

    def _second(self, _stop: threading.Event) -> str | None:
        self.ran.append("second")
        return None

    def done(self, rounds: int) -> None:
        """Wait until so many rounds are over, and see that nothing more happens."""
        wait_for(lambda: len(self.ran) >= 2 * rounds)
        time.sleep(0.03)
        assert self.ran == ["first", "second"] * rounds


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    found = Rounds()
    yield found
    found.held.set()
    found.work.close()


def test_jobs_run_in_order_once_a_wake(rounds: Rounds) -> None:
    rounds.done(1)
    rounds.work.wake()
    rounds.done(2)


@pytest.mark.parametrize(
    "error", [StorageError("the disk is odd: check it"), OSError(24, "no descriptor"), MemoryError()]
)
def test_a_job_that_fails_costs_that_job_alone(rounds: Rounds, error: Exception) -> None:
    rounds.done(1)
    rounds.error = error
    rounds.work.wake()
    rounds.done(2)
    assert rounds.work.failure
    assert rounds.counted == ["idle_failures"]
    rounds.error, rounds.said = None, "no room for it"
    rounds.work.wake()
    rounds.done(3)
    assert rounds.work.failure == "no room for it"
    assert rounds.counted == ["idle_failures"] * 2
    rounds.said = None
    rounds.work.wake()
    rounds.done(4)
    assert rounds.work.failure is None


def test_a_wake_while_it_works_is_not_lost(rounds: Rounds) -> None:
    rounds.done(1)
    rounds.held.clear()
    rounds.work.wake()
    wait_for(lambda: len(rounds.ran) == 3)
    rounds.work.wake()
    rounds.held.set()
    rounds.done(3)


def test_soon_waits_for_quiet_and_a_wake_does_not(rounds: Rounds) -> None:
    rounds.done(1)
    rounds.work.soon()
    rounds.done(1)
    rounds.work.wake()
    rounds.done(2)
    rounds.work.soon()
    rounds.done(2)
    assert rounds.work._quiet_s == 60


def test_soon_comes_once_nobody_asks() -> None:
    rounds = Rounds(quiet_s=0.05)
    try:
        rounds.done(1)
        for _ in range(5):
            rounds.work.soon()
        rounds.done(2)
    finally:
        rounds.work.close()


def test_close_ends_it_between_jobs(rounds: Rounds) -> None:
    rounds.done(1)
    rounds.held.clear()
    rounds.work.wake()
    wait_for(lambda: len(rounds.ran) == 3)
    closing = threading.Thread(target=rounds.work.close)
    closing.start()
    wait_for(rounds.work._stop.is_set)
    rounds.held.set()
    closing.join(PATIENCE_S)
    assert rounds.ran == ["first", "second", "first"]
