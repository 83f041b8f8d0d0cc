"""Questions and the KV they find: none yet, some, and what is kept of what they computed."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.answers import AnswerText
from appliance.service import Answer, Appliance
from appliance.settings import Settings
from storage.catalog import BlockRow
from storage.errors import DiskFull
from storage.store import BlockStore
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import files_of, ready_blocks


def ask(appliance: Appliance, top_k: int = 3) -> Answer:
    return appliance.answer(QUESTION, strategy="reuse", top_k=top_k, max_new_tokens=12)


@pytest.mark.parametrize("kv", ["idle", "off"])
def test_before_kv_is_ready(appliance: Appliance, sample_files: Path, reads: list[str], kv: str) -> None:
    report = appliance.ingest([sample_files], kv=kv)
    assert (report.kv_bytes, reads) == (0, [])
    first, second, third = ask(appliance), ask(appliance), ask(appliance)
    assert first.answer_ids == second.answer_ids == third.answer_ids != ()
    assert first.tiers == {"computed": 3}
    if kv == "off":
        assert second.tiers == third.tiers == {"computed": 3}
        assert ready_blocks(appliance.settings.home) == []
        assert files_of(appliance.home.blocks) == {}
    else:
        assert (second.tiers, third.tiers) == ({"disk": 3}, {"pageable": 3})
        assert len(ready_blocks(appliance.settings.home)) == len(reads) == 3
    assert first.warnings == second.warnings == third.warnings == ()


def test_a_computed_block_is_the_ingested_block(appliance: Appliance, sample_files: Path, tmp_path: Path) -> None:
    """The same file name and bytes, whoever came first."""
    appliance.ingest([sample_files])
    expected = files_of(appliance.home.blocks)
    answer = ask(appliance, top_k=20).answer_ids
    for document in appliance.documents():
        appliance.remove(document.id)
    assert files_of(appliance.home.blocks) == {}
    appliance.ingest([sample_files], kv="idle")
    computed = ask(appliance, top_k=20)
    assert computed.answer_ids == answer
    assert set(computed.tiers) == {"computed"}
    assert files_of(appliance.home.blocks) == expected


def test_some_blocks_are_there(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    appliance.ingest([sample_files], kv="idle")
    whole = ask(appliance, top_k=1)
    assert whole.tiers == {"computed": 1}
    mixed = ask(appliance)
    assert mixed.tiers == {"disk": 1, "computed": 2}
    assert len(reads) == len(set(reads)) == 3
    assert mixed.tokens["reused"] < mixed.tokens["prompt"] - mixed.tokens["reused"] + mixed.tokens["prompt"]
    assert ask(appliance).answer_ids == mixed.answer_ids


def test_what_cannot_be_kept_is_a_warning(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appliance.ingest([sample_files], kv="idle")
    with monkeypatch.context() as full:

        def refuse(*_arguments: object, **_options: object) -> None:
            raise DiskFull("no room left to write here: free some space on this disk and try again")

        full.setattr(BlockStore, "publish", refuse)
        answer = ask(appliance)
    assert answer.answer_ids == ask(appliance).answer_ids
    assert [warning.startswith("a computed block was not kept: no room left") for warning in answer.warnings] == [
        True
    ] * 3
    assert ask(appliance).tiers == {"disk": 3}


def test_a_document_deleted_while_the_answer_streams(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files], kv="idle")
    stream = appliance.ask(QUESTION, strategy="reuse", top_k=20, max_new_tokens=30)
    next(stream)
    next(stream)
    for document in list(appliance.catalog.documents()):
        appliance.catalog.begin_delete(document.id)  # `remove` would wait for this answer
    assert list(stream)[-1] is not None
    assert ready_blocks(appliance.settings.home) == []
    assert files_of(appliance.home.blocks) == {}


def test_sources_are_spans_of_the_documents(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    answer = ask(appliance, top_k=20)
    scores = [source.score for source in answer.sources]
    assert scores == sorted(scores, reverse=True)
    text = (sample_files / "pump.txt").read_text()
    for source in answer.sources:
        assert source.end - source.start == len(source.text)
        if source.document == "pump":
            assert text[source.start : source.end] == source.text
    assert {source.document for source in answer.sources} == {"pump", "House rules", "Prices"}


def test_a_request_that_only_just_fits(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    window = appliance.engine.model.window
    prompt = ask(appliance, top_k=1).tokens["prompt"]
    answer = appliance.answer(QUESTION, top_k=1, max_new_tokens=window - prompt)
    assert answer.tokens["generated"] > 0


@pytest.mark.parametrize("refusal", [OSError(24, "Too many open files"), MemoryError()])
@pytest.mark.parametrize("strategy", ["auto", "reuse"])
def test_a_block_that_cannot_be_read_now_costs_its_computing(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, refusal: Exception
) -> None:
    appliance.ingest([sample_files])
    ask(appliance)  # everything is in memory
    files = files_of(appliance.home.blocks)
    expected = appliance.answer(QUESTION, strategy=strategy, top_k=3, max_new_tokens=12)
    load = BlockStore.load
    refused: list[str] = []

    def failing(self: BlockStore, row: BlockRow, *others: Any) -> Any:
        if not refused:
            refused.append(row.key)
            raise refusal
        return load(self, row, *others)

    with monkeypatch.context() as poor:
        poor.setattr(BlockStore, "load", failing)
        answer = appliance.answer(QUESTION, strategy=strategy, top_k=3, max_new_tokens=12)
    assert answer.tiers["computed"] == 1
    assert any("could not be read now" in line for line in answer.warnings)
    if strategy == "reuse":
        assert answer.answer_ids == expected.answer_ids
    assert files_of(appliance.home.blocks) == files, "the block itself is well and stays"
    counters = appliance.status()["counters"]
    assert counters["blocks_not_read"] == 1
    assert "blocks_damaged" not in counters
    assert appliance.store.leases_out == 0


def test_auto_computes_what_is_absent_with_the_prompt_and_keeps_it_for_the_next(
    appliance: Appliance, sample_files: Path, reads: list[str]
) -> None:
    appliance.ingest([sample_files], kv="idle")
    full = appliance.answer(QUESTION, strategy="full", top_k=3, max_new_tokens=12)
    first = appliance.answer(QUESTION, top_k=3, max_new_tokens=12)
    assert (first.strategy, first.plan["choice"], first.plan["computed_chunks"]) == ("full", "compute", [0, 1, 2])
    assert first.answer_ids == full.answer_ids
    assert first.tiers == {"computed": 3}
    assert len(reads) == len(ready_blocks(appliance.settings.home)) == 3
    second = appliance.answer(QUESTION, top_k=3, max_new_tokens=12)
    assert second.plan["choice"] in ("load", "split", "compute")
    assert second.plan["planning_ms"] >= 0
    assert appliance.answer(QUESTION, strategy="reuse", top_k=3, max_new_tokens=1).plan == {
        "choice": "reuse",
        "reason": "asked for",
    }


def test_a_stopped_answer_computes_nothing_more(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    appliance.ingest([sample_files], kv="idle")
    stream = appliance.ask(QUESTION, top_k=3, max_new_tokens=12)
    for event in stream:
        if isinstance(event, AnswerText):
            break
    stream.close()  # type: ignore[attr-defined]
    stop = threading.Event()
    stop.set()
    assert appliance.answer(QUESTION, top_k=3, max_new_tokens=12, stop=stop).answer_ids == ()
    assert reads == []
    assert ready_blocks(appliance.settings.home) == []


def test_without_room_on_disk_nothing_is_computed_in_vain(
    settings: Settings, sample_files: Path, reads: list[str]
) -> None:
    with Appliance.open(replace(settings, disk_bytes=0)) as appliance:
        report = appliance.ingest([sample_files])
        assert (report.chunks_without_room, report.kv_bytes, report.error) == (report.chunks, 0, None)
        first = appliance.answer(QUESTION, top_k=3, max_new_tokens=12)
        assert first.answer_ids == appliance.answer(QUESTION, top_k=3, max_new_tokens=12).answer_ids != ()
        assert first.warnings == ()
    assert reads == []
    assert ready_blocks(settings.home) == []
