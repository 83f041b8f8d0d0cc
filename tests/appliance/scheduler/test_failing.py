"""A question that fails, in whatever part, fails alone: the others are answered as ever."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from appliance.answering import Answerer
from appliance.block_source import StoredBlocks
from appliance.errors import QuestionRefused
from appliance.reply import Reply
from appliance.scheduler import inference
from appliance.service import Appliance
from models.decoding import DecodeRow, decode_rows
from models.executor import Executor
from models.loading import LanguageModel
from tests.appliance.scheduler.conftest import PATIENCE_S
from tests.appliance.scheduler.test_leaving import ask
from tests.appliance.test_idle import wait_for


@pytest.mark.parametrize("part", ["prepare", "load", "finish", "decode", "settle"])
def test_an_error_is_its_own(stored: Appliance, monkeypatch: pytest.MonkeyPatch, part: str) -> None:
    expected = ask(stored, max_new_tokens=24).answer_ids
    marked = "Where does the log hang?"
    broke: Exception = MemoryError(f"no memory in {part}")

    def break_for(target: type, name: str, is_marked: Callable[..., bool]) -> None:
        whole = getattr(target, name)

        def breaking(self: Any, *arguments: Any, **options: Any) -> Any:
            if is_marked(self, *arguments):
                raise broke
            return whole(self, *arguments, **options)

        monkeypatch.setattr(target, name, breaking)

    of_marked: set[int] = set()
    answered = Answerer.prepare

    def noted(self: Answerer, question: Any, *others: Any) -> Any:
        prepared = answered(self, question, *others)
        if question.text == marked:
            of_marked.add(id(prepared.source))
        return prepared

    monkeypatch.setattr(Answerer, "prepare", noted)
    if part == "prepare":
        break_for(Answerer, "_retrieve", lambda _, question, *__: question.text == marked)
    elif part == "load":
        break_for(StoredBlocks, "load", lambda source, *_: id(source) in of_marked)
        broke = RuntimeError("the device is lost")  # a MemoryError of a load costs its block alone
    elif part == "finish":
        break_for(Executor, "finish", lambda _, begun: id(begun.source) in of_marked)
    elif part == "decode":
        break_for(Reply, "push", lambda reply, _: id(reply.prepared.source) in of_marked and len(reply._ids) == 3)
    else:
        break_for(Answerer, "settle", lambda _, prepared, __: id(prepared.source) in of_marked)

    with ThreadPoolExecutor(4) as pool:
        well = [pool.submit(ask, stored, max_new_tokens=24) for _ in range(2)]
        ill = pool.submit(stored.answer, marked, strategy="reuse", max_new_tokens=24)
        well += [pool.submit(ask, stored, max_new_tokens=24)]
        with pytest.raises((MemoryError, RuntimeError), match=r"no memory in|device is lost"):
            ill.result(PATIENCE_S)
        assert {future.result(PATIENCE_S).answer_ids for future in well} == {expected}
    wait_for(lambda: stored.store.leases_out == 0)


def test_a_step_that_fails_together_is_done_alone(stored: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ask(stored, max_new_tokens=24).answer_ids
    refused: list[int] = []

    def poor(model: LanguageModel, rows: Sequence[DecodeRow]) -> torch.Tensor:
        if len(rows) > 1:
            refused.append(len(rows))
            raise RuntimeError("out of memory")
        return decode_rows(model, rows)

    monkeypatch.setattr(inference, "decode_rows", poor)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, stored, max_new_tokens=24) for _ in range(4)]
        assert {future.result(PATIENCE_S).answer_ids for future in asked} == {expected}
    assert refused


def test_a_question_longer_than_the_room_left(stored: Appliance) -> None:
    expected = ask(stored).answer_ids
    with ThreadPoolExecutor(4) as pool:
        well = [pool.submit(ask, stored) for _ in range(3)]
        ill = pool.submit(stored.answer, "long " * 500)
        with pytest.raises(QuestionRefused, match="the model's window is 2048: shorten the question"):
            ill.result(PATIENCE_S)
        assert {future.result(PATIENCE_S).answer_ids for future in well} == {expected}
