"""Who gets the model: questions one at a time, before background work that waits."""

import threading
import time
from collections.abc import Callable

from appliance.turns import Turns

PATIENCE_S = 10.0


def start(action: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    return thread


def settle() -> None:
    """Time for a thread to reach the point where it waits."""
    time.sleep(0.05)


def test_a_waiting_question_goes_before_waiting_background_work() -> None:
    turns, order = Turns(), list[str]()
    holding, let_go = threading.Event(), threading.Event()

    def first() -> None:
        with turns.background():
            holding.set()
            let_go.wait(PATIENCE_S)

    def background() -> None:
        with turns.background():
            order.append("background")

    def question() -> None:
        with turns.question():
            order.append("question")

    threads = [start(first)]
    assert holding.wait(PATIENCE_S)
    threads += [start(background), start(background)]
    settle()
    threads += [start(question), start(question)]
    settle()
    assert order == []
    let_go.set()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == ["question", "question", "background", "background"]


def test_one_at_a_time() -> None:
    turns, inside, most = Turns(), 0, 0
    lock = threading.Lock()

    def work(number: int) -> None:
        nonlocal inside, most
        for _ in range(40):
            with turns.question() if number % 2 else turns.background():
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with lock:
                    inside -= 1

    threads = [start(lambda number=number: work(number)) for number in range(6)]  # type: ignore[misc]
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    assert most == 1


def test_an_error_gives_the_turn_back() -> None:
    turns = Turns()
    for hold in (turns.question, turns.background):
        try:
            with hold():
                raise ValueError
        except ValueError:
            pass
    done = threading.Event()

    def work() -> None:
        with turns.background():
            done.set()

    start(work)
    assert done.wait(PATIENCE_S)


def test_questions_are_served_in_the_order_they_came() -> None:
    turns, order, threads = Turns(), list[int](), list[threading.Thread]()

    def question(number: int) -> None:
        with turns.question():
            order.append(number)

    turns.take()
    assert not turns.wanted
    for number in range(5):
        threads.append(start(lambda number=number: question(number)))  # type: ignore[misc]
        settle()
        assert turns.wanted
    turns.give()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert order == [0, 1, 2, 3, 4]
    assert not turns.wanted
