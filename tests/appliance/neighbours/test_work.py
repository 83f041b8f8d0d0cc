"""Chunks are read behind their neighbours: one a turn, in the codec of their class, as far as the disk budget goes."""

import threading

import numpy as np
import pytest
import torch

from appliance.neighbours import NeighbourWork, neighbour_job
from appliance.reencoding import Reencoding
from appliance.service import Appliance
from models.neighbour_reader import NeighbourReader
from storage.blocks import encode_block
from storage.codecs import CodecPair
from storage.contexts import is_near
from storage.errors import BlockRefused, DiskFull
from storage.profiles import fixed_profile
from storage.store import BlockStore
from tests.appliance.fixtures import Cli
from tests.appliance.neighbourhood import SETTINGS, check, chunk_ids, logits, near_rows, neighbouring, wanted
from tests.appliance.reencoded import two_classes


def test_every_chunk_is_read_behind_its_neighbours(ingested: Appliance) -> None:
    chunks = chunk_ids(ingested)
    before = logits(ingested, chunks[:3])
    work = neighbouring(ingested)
    assert len(work.pending()) == len(chunks)
    assert work.run() == NeighbourWork(read=len(chunks))
    rows = near_rows(ingested)
    assert sorted(rows) == chunks
    assert all(is_near(row.context) for row in rows.values())
    check(ingested)
    assert work.run() == neighbouring(ingested).run() == NeighbourWork()
    served = wanted(ingested, chunks[:3])
    assert [each.served for each in served] == [rows[chunk] for chunk in chunks[:3]]
    assert all(each.row is not None and each.row.key == each.key for each in served)
    assert torch.equal(logits(ingested, chunks[:3], near=False), before)
    assert float((logits(ingested, chunks[:3]) - before).abs().max()) > 1e-3


def test_a_chunk_gets_the_codec_of_its_class(ingested: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = chunk_ids(ingested)
    profile = two_classes("bf16", "int4", 2 / len(chunks))
    ingested.catalog.record_uses([chunks[-2:]] * 3)
    work = neighbouring(ingested, profile=profile)
    assert [plan.chunk_id for plan in work.pending()][:2] == chunks[-2:]  # the hottest first
    work.run()
    assert {chunk: row.codec for chunk, row in near_rows(ingested).items()} == {
        chunk: "bf16" if chunk in chunks[-2:] else "int4" for chunk in chunks
    }
    check(ingested)
    near = near_rows(ingested)
    Reencoding(
        ingested.catalog, ingested.store, ingested.engine, ingested.turns, fixed_profile(CodecPair.named("f32"))
    ).run()
    assert near_rows(ingested) == near  # encoding again is for blocks without neighbours
    assert work.run() == NeighbourWork()


def test_numbers_that_do_not_fit_are_kept_in_bf16(ingested: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    def choosy(header: object, *tensors: torch.Tensor) -> object:
        if getattr(header, "codec") != "bf16":  # noqa: B009
            raise BlockRefused("out of range")
        return encode_block(header, *tensors)  # type: ignore[arg-type]

    monkeypatch.setattr("appliance.neighbours.work.encode_block", choosy)
    assert neighbouring(ingested).run() == NeighbourWork(read=len(chunk_ids(ingested)))
    assert {row.codec for row in near_rows(ingested).values()} == {"bf16"}


def test_the_disk_budget_is_asked_for_every_block(ingested: Appliance) -> None:
    chunks = chunk_ids(ingested)
    ingested.catalog.record_uses([chunks[:1]])
    asked: list[tuple[int, float]] = []

    def room(size_bytes: int, score: float) -> bool:
        asked.append((size_bytes, score))
        return len(asked) > 1

    work = neighbouring(ingested, room=room)
    assert work.run() == NeighbourWork(read=len(chunks) - 1, no_room=1)
    assert asked[0][1] == 1.0
    assert sum(size for size, _ in asked[1:]) == sum(row.size_bytes for row in near_rows(ingested).values())
    assert [plan.chunk_id for plan in work.pending()] == chunks[:1]


def test_it_stops_after_the_chunk_in_hand_and_goes_on(ingested: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    stop, chunks = threading.Event(), chunk_ids(ingested)
    publish = BlockStore.publish

    def last(*arguments: object, **named: object) -> object:
        stop.set()
        return publish(*arguments, **named)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(BlockStore, "publish", last)
        assert neighbouring(ingested).run(stop) == NeighbourWork(read=1)
    assert neighbouring(ingested).pending(stop) == []  # no plans either
    assert neighbouring(ingested).run() == NeighbourWork(read=len(chunks) - 1)
    check(ingested)


def test_a_question_goes_before_the_next_chunk(ingested: Appliance, monkeypatch: pytest.MonkeyPatch) -> None:
    began, order = threading.Event(), []
    read = NeighbourReader.read

    def noted(self: NeighbourReader, *arguments: object) -> object:
        order.append("chunk")
        if not began.is_set():
            began.set()
            while not ingested.turns.wanted:
                threading.Event().wait(0.005)
        return read(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(NeighbourReader, "read", noted)
    background = threading.Thread(target=neighbouring(ingested).run)
    background.start()
    assert began.wait(10)
    with ingested.turns.question():
        order.append("question")
    background.join(20)
    assert order[:3] == ["chunk", "question", "chunk"]
    check(ingested)


def test_the_job_keeps_its_plans_and_tells_what_went_wrong(
    ingested: Appliance, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []

    def open_work() -> object:
        opened.append(neighbouring(ingested))
        return opened[-1]

    job = neighbour_job(open_work)  # type: ignore[arg-type]

    def full(*_arguments: object, **_named: object) -> None:
        raise DiskFull("no room left here: free some")

    with monkeypatch.context() as patched:
        patched.setattr(BlockStore, "publish", full)
        assert job(threading.Event()) == "no room left here: free some"
    assert job(threading.Event()) is None
    assert len(opened) == 1
    check(ingested)


def test_progress_is_told(ingested: Appliance, cli: Cli) -> None:
    chunks = chunk_ids(ingested)
    neighbouring(ingested).run()
    assert ingested.status()["neighbours"] == {"ready": len(chunks), "wanted": len(chunks)}
    ingested.close()
    spoken = cli("status", "--model", ingested.settings.model).out
    assert f"neighbours    {len(chunks)} of {len(chunks)} chunks were read behind theirs" in spoken


def test_scores_tell_tokens_apart(ingested: Appliance) -> None:
    neighbouring(ingested, SETTINGS).run()
    keys = [each.key for each in wanted(ingested, chunk_ids(ingested))]
    outside, alone = ingested.catalog.craft_scores(keys), ingested.catalog.craft_scores(keys, neighbours_alone=True)
    heads = ingested.engine.model.heads
    for key in keys:
        assert np.all((alone[key] > 0) & (alone[key] < outside[key]) & (outside[key] < heads))
