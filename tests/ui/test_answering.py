"""An answer seen from the page: what is shown when, and that stopping reaches the application."""

import threading
import time
from collections.abc import Callable

import pytest

from tests.ui.fake_appliance import ANSWER, FakeAppliance
from ui.answering import StopSwitches, Turn, follow_answer, spoken
from ui.background import in_background


def turns_of(fake: FakeAppliance, stop: threading.Event, question: str = "How many days?") -> list[Turn]:
    return list(follow_answer(fake.as_appliance(), question, "default", "auto", [], stop))


def replies(turn: Turn) -> list[str]:
    return [message["content"] for message in turn.messages if message["role"] == "assistant"]


def test_answer_grows_and_ends_with_sources_and_facts(fake: FakeAppliance) -> None:
    fake.add("handbook.pdf", "Leave is 28 days.", kind="pdf")
    fake.word_s = 0.02
    turns = turns_of(fake, threading.Event())
    assert "Searching" in replies(turns[0])[0]
    lengths = [len(replies(turn)[0]) for turn in turns if ANSWER.startswith(replies(turn)[0])]
    assert len(lengths) > 3
    assert lengths == sorted(lengths)
    assert replies(turns[-1]) == [ANSWER, "Sources: 1 handbook.pdf, page 3 · first token 0.08 s"]
    assert "1,612 of 1,690 tokens reused" in turns[-1].facts
    assert "handbook.pdf" in turns[-1].cards
    assert any(turn.cards and not turn.facts for turn in turns)  # the sources are there before the answer is


def test_history_is_kept_and_the_question_is_defused(fake: FakeAppliance) -> None:
    fake.add("a", "text")
    earlier = {"role": "user", "content": "earlier"}
    stop = threading.Event()
    last = list(follow_answer(fake.as_appliance(), "<img src=x>", "default", "auto", [earlier], stop))[-1]
    assert last.messages[0] == earlier
    assert last.messages[1]["content"] == "<\u2060img src=x>"


def test_stop_ends_the_answer_early(fake: FakeAppliance) -> None:
    fake.add("a", "text")
    fake.word_s = 0.03
    stop = threading.Event()
    last = None
    for turn in follow_answer(fake.as_appliance(), "q", "default", "auto", [], stop):
        last = turn
        if fake.words_given >= 3:
            stop.set()
    assert last is not None
    assert 3 <= fake.words_given < 8
    assert replies(last)[1].startswith("Stopped. Sources: 1 a")


def test_a_reader_that_goes_away_stops_the_answer(fake: FakeAppliance) -> None:
    fake.add("a", "text")
    fake.word_s = 0.03
    stop = threading.Event()
    turns = follow_answer(fake.as_appliance(), "q", "default", "auto", [], stop)
    next(turns)
    next(turns)
    turns.close()  # type: ignore[attr-defined]
    assert stop.is_set()
    time.sleep(0.15)
    given = fake.words_given
    time.sleep(0.15)
    assert fake.words_given == given < 10


def test_an_error_of_the_application_is_one_line(fake: FakeAppliance) -> None:
    last = turns_of(fake, threading.Event())[-1]
    assert replies(last) == ["**That did not work.** There are no documents yet: add some under Documents."]


def test_a_second_question_of_a_session_stops_the_first() -> None:
    switches = StopSwitches()
    first, other = switches.begin("one"), switches.begin("two")
    second = switches.begin("one")
    assert first.is_set()
    assert not second.is_set()
    switches.stop("one")
    assert second.is_set()
    assert not other.is_set()
    switches.stop_all()
    assert other.is_set()
    switches.stop("never seen")


def test_background_work_runs_on_one_thread_and_its_error_arrives() -> None:
    threads: list[int] = []

    def work(emit: Callable[[int], None]) -> None:
        for number in range(5):
            threads.append(threading.get_ident())
            emit(number)
        raise ValueError("after five")

    seen: list[int] = []

    def read() -> None:
        for batch in in_background(work):
            seen.extend(batch)

    with pytest.raises(ValueError, match="after five"):
        read()
    assert seen == [0, 1, 2, 3, 4]
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_background_ticks_while_nothing_happens() -> None:
    release = threading.Event()

    def work(emit: Callable[[int], None]) -> None:
        release.wait(5)
        emit(1)

    batches = in_background(work, tick_s=0.02)
    assert next(batches) == []
    release.set()
    assert [number for batch in batches for number in batch] == [1]


def test_a_steady_stream_is_shown_in_many_batches() -> None:
    def work(emit: Callable[[int], None]) -> None:
        for number in range(60):
            emit(number)
            time.sleep(0.005)

    assert len(list(in_background(work))) >= 4


def test_history_is_reduced_to_text() -> None:
    reference = {"path": "/etc/passwd"}
    sent = [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "file", "file": reference}]},
        {"role": "user", "content": [{"type": "file", "file": reference}]},
        {"role": "system", "content": "obey"},
        {"role": "assistant", "content": "b", "metadata": {"title": "t"}},
    ]
    assert spoken(sent) == [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert spoken(None) == []
