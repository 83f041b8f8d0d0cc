"""Several questions at once: the answers they have alone, in few passes, loads under way while others compute."""

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.scheduler import inference
from appliance.service import Answer, AnswerFinished, AnswerStarted, AnswerText, Appliance
from models.decoding import DecodeRow, decode_rows
from models.loading import LanguageModel
from storage.store import BlockStore
from tests.appliance.scheduler.conftest import PATIENCE_S, Hold
from tests.appliance.test_idle import wait_for

QUESTIONS = (
    "Who replaced the valve?",
    "What do visitors wear?",
    "What does a brass body cost?",
    "Where does the log hang?",
    "Who empties the machine?",
    "How often is the valve greased?",
)


def together(appliance: Appliance, **options: Any) -> list[Answer]:
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        return list(pool.map(lambda text: appliance.answer(text, max_new_tokens=24, **options), QUESTIONS))


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each decode step had."""
    sizes: list[int] = []

    def noted(model: LanguageModel, rows: Sequence[DecodeRow]) -> torch.Tensor:
        sizes.append(len(rows))
        return decode_rows(model, rows)

    monkeypatch.setattr(inference, "decode_rows", noted)
    return sizes


@pytest.mark.parametrize("strategy", ["reuse", "full", "fusion", "epic"])
def test_the_answers_are_those_of_one_after_another(stored: Appliance, batches: list[int], strategy: str) -> None:
    alone = [stored.answer(text, max_new_tokens=24, strategy=strategy).answer_ids for text in QUESTIONS]
    assert set(batches) == {1}
    answers = together(stored, strategy=strategy)
    assert [answer.answer_ids for answer in answers] == alone
    assert max(batches) > 1
    assert all(answer.warnings == () for answer in answers)


def test_four_are_decoded_in_one_step(stored: Appliance, batches: list[int], hold: Hold) -> None:
    """However many come: those that are loaded while one computes run together with it."""
    hold.close()
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        asked = [pool.submit(stored.answer, text, strategy="reuse", max_new_tokens=24) for text in QUESTIONS]
        assert hold.reached.acquire(timeout=PATIENCE_S)
        wait_for(lambda: stored.status()["questions"]["arenas_free"] == 0)
        assert stored.status()["questions"]["queued"] == len(QUESTIONS) - 4
        hold.open()
        assert all(future.result(PATIENCE_S).tokens["generated"] for future in asked)
    assert max(batches) == 4


def test_a_question_loads_while_another_computes(
    stored: Appliance, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    load = BlockStore.load

    def noted(self: BlockStore, *arguments: Any) -> Any:
        found = load(self, *arguments)
        loaded.append(found.tier)
        return found

    monkeypatch.setattr(BlockStore, "load", noted)
    hold.close()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(stored.answer, QUESTIONS[0], strategy="full", max_new_tokens=4)
        assert hold.reached.acquire(timeout=PATIENCE_S)
        second = pool.submit(stored.answer, QUESTIONS[1], strategy="reuse", top_k=3, max_new_tokens=4)
        wait_for(lambda: len(loaded) == 3)
        assert not first.done()
        wait_for(lambda: stored.store.leases_out == 0)  # placed in an arena of its own, and released
        hold.open()
        assert "computed" not in second.result(PATIENCE_S).tiers
        assert first.result(PATIENCE_S).tokens["generated"] > 0


@pytest.mark.parametrize("strategy", ["full", "reuse", "blend"])
def test_its_plain_twin_answers_the_same(stored: Appliance, strategy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(appliance: Appliance) -> list[Any]:
        events = list(appliance.ask(QUESTIONS[0], strategy=strategy, max_new_tokens=24))
        assert isinstance(events[0], AnswerStarted)
        last = events[-1]
        assert isinstance(last, AnswerFinished)
        texts = [event.text for event in events if isinstance(event, AnswerText)]
        return [events[0], texts, last.answer.answer_ids, last.answer.tokens, last.answer.warnings]

    scheduled = ask(stored)
    monkeypatch.setattr(stored._asking, "_settings", replace(stored.settings, scheduling="plain"))
    assert ask(stored) == scheduled


def test_one_arena_is_enough(settings: Any, sample_files: Path) -> None:
    with Appliance.open(replace(settings, answers_at_once=1)) as appliance:
        appliance.ingest([sample_files])
        alone = [appliance.answer(text, strategy="reuse", max_new_tokens=24).answer_ids for text in QUESTIONS]
        assert [answer.answer_ids for answer in together(appliance, strategy="reuse")] == alone
        assert appliance.status()["questions"]["arenas_free"] == 1


def test_who_wants_the_turn_gets_it_though_questions_keep_coming(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    document = appliance.documents()[0].id
    enough = threading.Event()

    def ask() -> int:
        asked = 0
        while not enough.is_set():
            appliance.answer(QUESTIONS[0], strategy="reuse", max_new_tokens=8)
            asked += 1
        return asked

    with ThreadPoolExecutor(3) as pool:
        askers = [pool.submit(ask) for _ in range(3)]
        removed = threading.Thread(target=lambda: appliance.remove(document))
        removed.start()
        removed.join(PATIENCE_S)
        enough.set()
        assert not removed.is_alive()
        assert all(asker.result(PATIENCE_S) for asker in askers)
    assert document not in {row.id for row in appliance.documents()}
