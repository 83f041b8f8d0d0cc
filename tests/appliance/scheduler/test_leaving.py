"""Questions that are refused, stopped, dropped or fail: each alone, everything given back, the next answer right."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.block_source import StoredBlocks
from appliance.errors import ApplianceError, Busy
from appliance.scheduler import inference
from appliance.scheduler.base import SchedulerSettings
from appliance.service import Answer, AnswerEvent, AnswerFinished, AnswerStarted, Appliance
from appliance.settings import Settings
from appliance.stopping import Stop
from models.decoding import DecodeRow, decode_rows
from models.loading import LanguageModel
from tests.appliance.fixtures import QUESTION
from tests.appliance.scheduler.conftest import PATIENCE_S, Hold, assert_all_given_back
from tests.appliance.test_idle import wait_for
from ui.answering import StopSwitches, follow_answer


def ask(appliance: Appliance, **options: Any) -> Answer:
    return appliance.answer(QUESTION, **{"strategy": "reuse", "max_new_tokens": 8, **options})


def counts(appliance: Appliance) -> dict[str, int]:
    found: dict[str, int] = appliance.status()["questions"]
    return found


def test_a_full_queue_is_one_clear_error(settings: Settings, sample_files: Path, hold: Hold) -> None:
    with Appliance.open(replace(settings, answers_at_once=1, questions_waiting=2)) as appliance:
        appliance.ingest([sample_files])
        expected = ask(appliance).answer_ids
        assert hold.reached.acquire(timeout=PATIENCE_S)
        hold.close()
        with ThreadPoolExecutor(3) as pool:
            asked = [pool.submit(ask, appliance)]
            assert hold.reached.acquire(timeout=PATIENCE_S)
            asked += [pool.submit(ask, appliance) for _ in range(2)]
            wait_for(lambda: counts(appliance)["queued"] == 2)
            with pytest.raises(Busy, match="2 questions wait already: ask again in a moment"):
                ask(appliance)
            assert counts(appliance)["refused"] == 1
            hold.open()
            assert {future.result(PATIENCE_S).answer_ids for future in asked} == {expected}
        assert_all_given_back(appliance)


def board_requests(appliance: Appliance) -> Iterator[Any]:
    scheduler = appliance._asking._scheduler
    assert scheduler is not None
    return iter(list(scheduler._board._here))


def queued(appliance: Appliance, hold: Hold) -> Callable[[], bool]:
    return lambda: counts(appliance)["queued"] == 1


def landed(appliance: Appliance, hold: Hold) -> Callable[[], bool]:
    return lambda: any(each.place.value == "landing" for each in board_requests(appliance))


@pytest.mark.parametrize("where", [queued, landed])
@pytest.mark.parametrize("way", ["close", "stop"])
def test_leaving_before_its_turn_frees_its_place_at_once(
    settings: Settings, sample_files: Path, hold: Hold, where: Any, way: str
) -> None:
    """The question before it is still being computed."""
    arenas = 1 if where is queued else 2
    with Appliance.open(replace(settings, answers_at_once=arenas)) as appliance:
        appliance.ingest([sample_files])
        expected = ask(appliance).answer_ids
        assert hold.reached.acquire(timeout=PATIENCE_S)
        hold.close()
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(ask, appliance)
            assert hold.reached.acquire(timeout=PATIENCE_S)
            stop = Stop()
            second = pool.submit(lambda: list(appliance.ask(QUESTION, strategy="reuse", stop=stop)))
            wait_for(where(appliance, hold))
            if way == "stop":
                stop.set()
                last = second.result(PATIENCE_S)[-1]
                assert isinstance(last, AnswerFinished)
                assert last.answer.answer_ids == ()
                assert bool(last.answer.sources) == (where is landed)
            else:
                leave(appliance)
                assert not isinstance(second.result(PATIENCE_S)[-1:], AnswerFinished)
            wait_for(lambda: counts(appliance)["queued"] == 0 and counts(appliance)["running"] == 1)
            assert counts(appliance)["arenas_free"] == arenas - 1
            assert counts(appliance)["cancelled"] == 1
            assert not first.done()
            hold.open()
            assert first.result(PATIENCE_S).answer_ids == expected
        assert_all_given_back(appliance)


def leave(appliance: Appliance) -> None:
    """As if the reader of the latest question had gone away: a stream that another thread reads cannot be closed."""
    scheduler = appliance._asking._scheduler
    assert scheduler is not None
    board = scheduler._board
    request = next(each for each in board._here if each.place.value in ("waiting", "landing"))
    request.cancelled = True
    board.leave(request)


def test_a_dropped_answer_ends_before_the_next_step(stored: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ask(stored, max_new_tokens=60).answer_ids
    before = counts(stored)["cancelled"]
    steps: list[int] = []

    def noted(model: LanguageModel, rows: Sequence[DecodeRow]) -> torch.Tensor:
        steps.append(len(rows))
        return decode_rows(model, rows)

    monkeypatch.setattr(inference, "decode_rows", noted)
    stream = stored.ask(QUESTION, strategy="reuse", max_new_tokens=60)
    assert isinstance(next(stream), AnswerStarted)
    stream.close()  # type: ignore[attr-defined]
    assert stored._asking.wait_until_idle(PATIENCE_S)
    assert len(steps) <= SchedulerSettings().ahead_tokens
    assert counts(stored)["cancelled"] == before + 1
    assert ask(stored, max_new_tokens=60).answer_ids == expected


def test_stopping_while_blocks_load_ends_the_wait(stored: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model waits for a stuck disk: the stop ends that wait, and another question is answered meanwhile."""
    expected = ask(stored).answer_ids
    stuck, go_on = threading.Event(), threading.Event()
    load = StoredBlocks.load

    def slow(self: StoredBlocks, chunk: int, *others: Any) -> Any:
        if chunk == 0 and not stuck.is_set():
            stuck.set()
            assert go_on.wait(PATIENCE_S)
        return load(self, chunk, *others)

    monkeypatch.setattr(StoredBlocks, "load", slow)
    stop = Stop()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ask, stored, stop=stop)
        assert stuck.wait(PATIENCE_S)
        wait_for(lambda: any(each.place.value == "computing" for each in board_requests(stored)))
        stop.set()
        assert answer.result(PATIENCE_S).answer_ids == ()
        assert counts(stored)["arenas_free"] == stored.settings.answers_at_once
        assert ask(stored).answer_ids == expected  # with three loading threads
        go_on.set()
    wait_for(lambda: stored.store.leases_out == 0)


def test_a_dropped_connection_leaves_the_queue(settings: Settings, sample_files: Path, hold: Hold) -> None:
    """The page's own code: the browser goes away while its question waits behind another's."""
    with Appliance.open(replace(settings, answers_at_once=1)) as appliance:
        appliance.ingest([sample_files])
        expected = ask(appliance).answer_ids
        assert hold.reached.acquire(timeout=PATIENCE_S)
        hold.close()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(ask, appliance)
            assert hold.reached.acquire(timeout=PATIENCE_S)
            pictures = follow_answer(appliance, QUESTION, "default", "reuse", [], StopSwitches().begin("browser"))
            next(pictures)
            next(pictures)
            wait_for(queued(appliance, hold))
            pictures.close()  # type: ignore[attr-defined]
            wait_for(lambda: counts(appliance)["queued"] == 0)
            assert not first.done()
            hold.open()
            assert first.result(PATIENCE_S).answer_ids == expected
        assert_all_given_back(appliance)


def test_a_stop_tells_who_listens_once() -> None:
    stop, told = Stop(), list[str]()
    stop.listen(lambda: told.append("before"))
    stop.set()
    stop.set()
    stop.listen(lambda: told.append("after"))
    assert told == ["before", "after"]


def test_who_does_not_read_pauses_alone(stored: Appliance) -> None:
    slow = stored.ask(QUESTION, strategy="reuse", max_new_tokens=60)
    next(slow)
    expected = ask(stored, max_new_tokens=60).answer_ids  # though the other never ends
    rest = list(slow)
    last = rest[-1]
    assert isinstance(last, AnswerFinished)
    assert last.answer.answer_ids == expected


def test_closing_ends_what_is_under_way(settings: Settings, sample_files: Path) -> None:
    before = set(threading.enumerate())
    appliance = Appliance.open(settings)
    appliance.ingest([sample_files])
    streams: list[Iterator[AnswerEvent]] = [appliance.ask(QUESTION, max_new_tokens=60) for _ in range(6)]
    started = [next(stream) for stream in streams[:4]]
    assert all(isinstance(event, AnswerStarted) for event in started)
    waiting = ThreadPoolExecutor(2)
    late = [waiting.submit(list, stream) for stream in streams[4:]]
    wait_for(lambda: counts(appliance)["queued"] == 2)
    appliance.close()
    for stream in streams[:4]:
        with pytest.raises(ApplianceError, match="was closed"):
            list(stream)
    for future in late:
        with pytest.raises(ApplianceError, match="was closed"):
            future.result(PATIENCE_S)
    waiting.shutdown()
    assert not [each for each in set(threading.enumerate()) - before if each.name.startswith("question-")]
    assert appliance.store.leases_out == 0
    appliance.close()  # safe to repeat
