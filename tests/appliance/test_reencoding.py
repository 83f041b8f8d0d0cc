"""Blocks follow their class of hotness: down from the stored block, up from the text, the old file until then."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from appliance.reencoding import REFUSED_COUNTER, ReencodeWork, Reencoding, derivable
from appliance.service import Appliance
from appliance.settings import Settings
from models.reader import ChunkReader
from storage.blocks import EncodedBlock
from storage.codecs import CodecPair
from storage.codecs.plain import PlainCodec
from storage.errors import BlockRefused
from storage.profiles import Profile, fixed_profile
from tests.appliance.fixtures import QUESTION
from tests.appliance.reencoded import codecs, rows_by_chunk, two_classes
from tests.appliance.stored import files_of
from tests.appliance.test_idle import wait_for

Work = Callable[[Profile], Reencoding]
SHRUNK = fixed_profile(CodecPair.named("int8"))


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, profile="f32")


@pytest.fixture
def work(appliance: Appliance, sample_files: Path) -> Work:
    """Over the samples, ingested in `f32`."""
    appliance.ingest([sample_files])
    return lambda profile: Reencoding(
        appliance.catalog, appliance.store, appliance.engine, appliance.turns, profile, lambda _bytes, _score: True
    )


def served(appliance: Appliance) -> dict[int, EncodedBlock]:
    """Every stored block, read and checked, by chunk."""
    found = {}
    for chunk, row in rows_by_chunk(appliance.catalog).items():
        lease = appliance.store.load(row)
        found[chunk] = replace(lease.block, data=lease.block.data.copy(), buffer=None)
        lease.release()
    files = set(files_of(appliance.home.blocks))
    assert files == {row.file for row in appliance.catalog.all_blocks()}
    assert list(appliance.home.temporary.iterdir()) == []
    return found


def test_down_is_encoded_from_the_stored_block(appliance: Appliance, work: Work, reads: list[str]) -> None:
    chunks = len(codecs(appliance.catalog))
    reads.clear()
    assert work(SHRUNK).run() == ReencodeWork(encoded=chunks)
    assert reads == []
    found = served(appliance)
    assert {block.header.codec for block in found.values()} == {"int8"}
    assert {block.header.generation for block in found.values()} == {1}
    engine = appliance.engine
    for chunk, block in found.items():
        ids = appliance.catalog.token_ids([chunk], engine.tokenizer)[chunk]
        header = block.header
        fresh = engine.reader.block(ids, header.key, header.fingerprint, header.collection, CodecPair.named("int8"), 1)
        assert block.data.tobytes() == fresh.data.tobytes()  # f32 lost nothing
        assert header == fresh.header
    assert work(SHRUNK).run() == ReencodeWork()


def test_up_is_computed_from_the_text(appliance: Appliance, work: Work, reads: list[str]) -> None:
    before = served(appliance)
    work(SHRUNK).run()
    reads.clear()
    done = work(fixed_profile(CodecPair.named("f32"))).run()
    assert done == ReencodeWork(recomputed=len(before))
    assert len(reads) == len(before)
    for chunk, block in served(appliance).items():
        assert block.data.tobytes() == before[chunk].data.tobytes()
        assert block.header.generation == 2


def test_blocks_follow_what_is_asked_for(appliance: Appliance, work: Work) -> None:
    chunks = sorted(codecs(appliance.catalog))
    profile = two_classes("bf16", "int8", 2 / len(chunks))
    work(profile).run()
    assert set(codecs(appliance.catalog).values()) == {"int8"}  # nobody asked yet
    appliance.catalog.record_uses([chunks[:2]] * 3 + [chunks[2:4]])
    done = work(profile).run()
    assert done == ReencodeWork(recomputed=2)
    hot = {chunk for chunk, codec in codecs(appliance.catalog).items() if codec == "bf16"}
    assert hot == set(chunks[:2])
    appliance.catalog.record_uses([chunks[-2:]] * 8)
    assert work(profile).run() == ReencodeWork(encoded=2, recomputed=2)
    hot = {chunk for chunk, codec in codecs(appliance.catalog).items() if codec == "bf16"}
    assert hot == set(chunks[-2:])
    served(appliance)


def test_keys_and_values_may_differ(appliance: Appliance, work: Work) -> None:
    mixed = fixed_profile(CodecPair.named("bf16+int8"))
    assert work(mixed).run().encoded > 0
    for block in served(appliance).values():
        assert (block.header.key_codec, block.header.value_codec) == ("bf16", "int8")
    assert work(SHRUNK).run().recomputed == 0  # bf16 to int8 and int8 as it is


def test_the_answer_is_the_same_while_it_goes_on(appliance: Appliance, work: Work) -> None:
    expected = appliance.answer(QUESTION, strategy="full", max_new_tokens=6).answer_ids
    stop, pending = threading.Event(), work(SHRUNK).pending()
    background = threading.Thread(target=lambda: work(SHRUNK).run(stop))
    background.start()
    answers = [appliance.answer(QUESTION, strategy=name, max_new_tokens=6) for name in ("full", "reuse", "reuse")]
    background.join(20)
    assert answers[0].answer_ids == expected
    assert all(answer.warnings == () for answer in answers)
    assert all("computed" not in answer.tiers for answer in answers[1:])
    assert len(pending) == len(served(appliance))
    assert appliance.status()["blocks_damaged"] == 0


def test_a_question_goes_before_the_next_block(
    appliance: Appliance, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, let_go = threading.Event(), threading.Event()
    order: list[str] = []
    decode = EncodedBlock.decode

    def slow(self: EncodedBlock, *arguments: Any) -> Any:
        if threading.current_thread().name == "encoding":
            order.append("block")
            began.set()
            let_go.wait(10)
        return decode(self, *arguments)

    monkeypatch.setattr(EncodedBlock, "decode", slow)
    background = threading.Thread(target=work(SHRUNK).run, name="encoding")
    background.start()
    assert began.wait(10)

    def ask() -> None:
        appliance.answer(QUESTION, strategy="full", max_new_tokens=2)
        order.append("answer")

    asking = threading.Thread(target=ask)
    asking.start()
    wait_for(lambda: appliance.turns.wanted)
    let_go.set()
    asking.join(10)
    background.join(10)
    assert order.index("answer") == 1
    assert len(order) > 3


def test_stopping_leaves_the_rest_for_later(appliance: Appliance, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    decode = EncodedBlock.decode

    def last(self: EncodedBlock, *arguments: Any) -> Any:
        stop.set()
        return decode(self, *arguments)

    with monkeypatch.context() as stopping:
        stopping.setattr(EncodedBlock, "decode", last)
        assert work(SHRUNK).run(stop) == ReencodeWork(encoded=1)
    rest = len(codecs(appliance.catalog)) - 1
    assert work(SHRUNK).run() == ReencodeWork(encoded=rest)
    assert work(SHRUNK).run() == ReencodeWork()


def test_a_codec_that_refuses_is_asked_once(appliance: Appliance, work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is out of its range stays as it is, counted, and is not tried at every round."""
    tried: list[int] = []
    encode = PlainCodec.encode_keys

    def picky(self: PlainCodec, keys: torch.Tensor) -> Any:
        if self.name == "bf16":
            tried.append(keys.shape[2])
            if len(tried) == 2:
                raise BlockRefused("keys hold numbers too large for their codec: use another codec for this model")
        return encode(self, keys)

    monkeypatch.setattr(PlainCodec, "encode_keys", picky)
    profile = fixed_profile(CodecPair.named("bf16"))
    chunks = len(codecs(appliance.catalog))
    assert work(profile).run() == ReencodeWork(encoded=chunks - 1, refused=1)
    assert work(profile).pending() == []
    assert work(profile).run() == ReencodeWork()
    assert len(tried) == chunks
    assert appliance.catalog.counters()[REFUSED_COUNTER] == 1
    assert sorted(set(codecs(appliance.catalog).values())) == ["bf16", "f32"]
    assert work(SHRUNK).run().encoded == chunks  # another codec may fit
    served(appliance)


def test_a_larger_codec_asks_for_room_and_a_smaller_makes_it(appliance: Appliance, work: Work) -> None:
    chunks = sorted(codecs(appliance.catalog))
    appliance.catalog.record_uses([chunks[:2]])
    work(two_classes("bf16", "int8", 2 / len(chunks))).run()  # down, so both are made from the stored blocks
    asked: list[tuple[int, float]] = []

    def no(size_bytes: int, score: float) -> bool:
        asked.append((size_bytes, score))
        return False

    before = {chunk: row.size_bytes for chunk, row in rows_by_chunk(appliance.catalog).items()}
    job = work(fixed_profile(CodecPair.named("f32")))
    job._room = no
    assert job.run() == ReencodeWork(no_room=len(chunks))
    scores = sorted((score for _, score in asked), reverse=True)
    assert [score for _, score in asked] == scores  # the hottest first
    work(fixed_profile(CodecPair.named("f32"))).run()
    after = {chunk: row.size_bytes for chunk, row in rows_by_chunk(appliance.catalog).items()}
    assert sorted(size for size, _ in asked) == sorted(after[chunk] - before[chunk] for chunk in chunks)


def test_a_damaged_block_is_computed_again(appliance: Appliance, work: Work, reads: list[str]) -> None:
    chunk, row = min(rows_by_chunk(appliance.catalog).items())
    path = appliance.store.path(row)
    raw = bytearray(path.read_bytes())
    raw[-5000] ^= 1
    path.write_bytes(raw)
    reads.clear()
    done = work(SHRUNK).run()
    assert (done.recomputed, reads) == (1, [row.key])
    assert served(appliance)[chunk].header.codec == "int8"
    assert appliance.catalog.counters()["blocks_damaged"] == 1


def test_what_is_deleted_meanwhile_is_passed_over(
    appliance: Appliance, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = appliance.find_document("pump.txt")
    gone = {
        row.key
        for chunk, row in rows_by_chunk(appliance.catalog).items()
        if appliance.catalog.chunks([chunk])[0].document_id == document
    }
    decode = EncodedBlock.decode

    def deleting(self: EncodedBlock, *arguments: Any) -> Any:
        if self.header.key in gone and appliance.catalog.document(document).state == "ready":
            appliance.catalog.begin_delete(document)
        return decode(self, *arguments)

    monkeypatch.setattr(EncodedBlock, "decode", deleting)
    done = work(SHRUNK).run()
    assert done.error is None
    appliance.store.recover()
    kept = served(appliance)
    assert done.encoded == len(kept) > 0
    assert gone.isdisjoint(block.header.key for block in kept.values())


@pytest.mark.parametrize(
    ("stored", "wanted", "expected"),
    [
        ("f32", "gse8", True),
        ("bf16", "int4+int3", True),
        ("bf16", "f32", False),
        ("int8", "int4", True),
        ("int8", "int4h+int3h", True),
        ("int8", "int4+int8", True),
        ("int8", "int8t", False),
        ("int8", "e4m3", False),
        ("int8", "bf16", False),
        ("int4", "int3", False),
        ("int4", "int4+int3", False),
        ("bf16+int4", "int8", False),
        ("bf16+int8", "e4m3+int4", True),
        ("e5m2", "gse8", False),
    ],
)
def test_what_may_be_made_from_what(stored: str, wanted: str, expected: bool) -> None:
    assert derivable(CodecPair.named(stored), CodecPair.named(wanted)) is expected


def test_the_reader_computes_in_the_codec_asked_for(appliance: Appliance, work: Work) -> None:
    """Upward keeps the key and everything else about the block; only codec and generation change."""
    chunk, row = min(rows_by_chunk(appliance.catalog).items())
    work(SHRUNK).run()
    work(fixed_profile(CodecPair.named("bf16"))).run()
    now = rows_by_chunk(appliance.catalog)[chunk]
    same = ("key", "collection_id", "fingerprint", "kind", "context", "tokens", "state")
    assert [getattr(now, name) for name in same] == [getattr(row, name) for name in same]
    assert (now.codec, now.generation) == ("bf16", 2)
    assert isinstance(appliance.engine.reader, ChunkReader)
