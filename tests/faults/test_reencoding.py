"""Kill -9, a full disk and a refused write while blocks are encoded again: the old file serves, nothing leaks."""

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.reencoding import ReencodeWork, Reencoding
from appliance.service import Appliance
from appliance.settings import Settings
from appliance.verify import open_and_verify
from storage.catalog import Catalog
from storage.codecs import CodecPair
from storage.errors import DiskFull
from storage.profiles import fixed_profile
from tests.appliance.fixtures import QUESTION, write_samples
from tests.appliance.stored import files_of
from tests.faults.killing import COUNT_ONLY
from tests.faults.reencoding_program import settings_of
from tests.faults.test_disk_full import failing
from tests.faults.test_ingest_kill import Killing, started

UP, DOWN = ("bf16", "f32"), ("f32", "int8")


@pytest.fixture(scope="module")
def killing() -> Iterator[Killing]:
    yield from started("tests.faults.reencoding_program")


@pytest.fixture(scope="module")
def ingested(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A data folder for each codec that is begun with; copied, never used."""
    folder = tmp_path_factory.mktemp("ingested")
    files = write_samples(folder / "files")
    homes = {}
    for codec in ("bf16", "f32"):
        settings = settings_of(folder / codec, tiny_models / "language", tiny_models / "embedding")
        with Appliance.open(replace(settings, profile=codec)) as appliance:
            assert not appliance.ingest([files]).failed
        homes[codec] = settings.home
    return homes


def begin(ingested: dict[str, Path], settings: Settings, before: str) -> Settings:
    shutil.copytree(ingested[before], settings.home)
    return replace(settings, pageable_bytes=0, profile=before)


def expected_ids(settings: Settings) -> tuple[int, ...]:
    with Appliance.open(settings) as appliance:
        return appliance.answer(QUESTION, strategy="full", max_new_tokens=6).answer_ids


def reencoding(appliance: Appliance, codec: str) -> Reencoding:
    profile = fixed_profile(CodecPair.named(codec))
    return Reencoding(appliance.catalog, appliance.store, appliance.engine, appliance.turns, profile)


def check(appliance: Appliance, chunks: int) -> None:
    """All blocks serve, files and rows agree, nothing is left over."""
    answer = appliance.answer(QUESTION, strategy="reuse", top_k=chunks, max_new_tokens=4)
    assert answer.warnings == ()
    assert answer.tiers == {"disk": chunks}
    rows = appliance.catalog.all_blocks()
    assert len(rows) == chunks
    assert {row.state for row in rows} == {"ready"}
    assert set(files_of(appliance.home.blocks)) == {row.file for row in rows}
    assert list(appliance.home.temporary.iterdir()) == []
    assert "blocks_damaged" not in appliance.catalog.counters()


TARGETS = [
    ("storage.blocks.base:EncodedBlock.decode", DOWN),
    ("models.reader:ChunkReader.block", UP),
    ("system:write", UP),
    ("system:fsync", DOWN),
    ("system:rename", UP),
    ("storage.catalog:Catalog.publish_block", DOWN),
    ("system:unlink", DOWN),
]


@pytest.mark.parametrize(("target", "way"), TARGETS)
def test_killed(
    killing: Killing, settings: Settings, ingested: dict[str, Path], target: str, way: tuple[str, str]
) -> None:
    """Before the first such call, then one in the middle; a new process serves every block, and finishes the work."""
    before, after = way
    settings = begin(ingested, settings, before)
    full = expected_ids(settings)
    other = settings.home.with_name("counted")
    shutil.copytree(settings.home, other)
    status, total = killing.run(target, COUNT_ONLY, after, other, settings.model, settings.embedding)
    assert status == 0
    with Appliance.open(settings) as appliance:
        chunks = len(appliance.catalog.all_blocks())
    assert total >= chunks
    for calls in (0, total // 3):
        status, _ = killing.run(target, calls, after, settings.home, settings.model, settings.embedding)
        assert status == -signal.SIGKILL
        with Appliance.open(settings) as appliance:
            assert {row.codec for row in appliance.catalog.all_blocks()} <= {before, after}
            check(appliance, chunks)
    with Appliance.open(replace(settings, profile=after)) as appliance:
        work = reencoding(appliance, after).run()
        assert work.error is None
        assert work.encoded + work.recomputed > 0
        check(appliance, chunks)
        assert {row.codec for row in appliance.catalog.all_blocks()} == {after}
        assert appliance.answer(QUESTION, strategy="full", max_new_tokens=6).answer_ids == full
    same = files_of(settings.home / "blocks")
    assert same == files_of(other / "blocks")  # as if nobody had been killed
    assert open_and_verify(settings.home).problems == ()


@pytest.mark.parametrize("name", ["preallocate", "write", "fsync"])
@pytest.mark.parametrize("way", [DOWN, UP], ids=["down", "up"])
def test_a_full_disk_keeps_the_old(
    settings: Settings, ingested: dict[str, Path], name: str, way: tuple[str, str]
) -> None:
    before, after = way
    settings = begin(ingested, settings, before)
    full = expected_ids(settings)
    with Appliance.open(settings) as appliance:
        chunks = len(appliance.catalog.all_blocks())
        done = 0
        for at in range(2, 12):  # until the first block is whole: it takes several calls, its header goes first
            with failing(name, at) as calls:
                work = reencoding(appliance, after).run()
            assert calls[0] > at
            assert work.error is not None
            assert "no room left" in work.error
            done = work.encoded + work.recomputed
            if done:
                break
            check(appliance, chunks)
        assert 0 < done < chunks
        check(appliance, chunks)
        assert sum(row.codec == after for row in appliance.catalog.all_blocks()) == done
        assert appliance.answer(QUESTION, strategy="full", max_new_tokens=6).answer_ids == full
        work = reencoding(appliance, after).run()
        assert (work.error, work.encoded + work.recomputed) == (None, chunks - done)
        check(appliance, chunks)
    assert open_and_verify(settings.home).problems == ()


def test_a_full_catalog_keeps_the_old(
    settings: Settings, ingested: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is durable, but its row finds no room."""
    settings = begin(ingested, settings, "f32")
    with Appliance.open(settings) as appliance:
        chunks = len(appliance.catalog.all_blocks())
        with monkeypatch.context() as full:

            def refuse(*_arguments: object) -> None:
                raise DiskFull("no room left here: free some")

            full.setattr(Catalog, "publish_block", refuse)
            assert reencoding(appliance, "int8").run() == ReencodeWork(error="no room left here: free some")
        check(appliance, chunks)
        assert {row.codec for row in appliance.catalog.all_blocks()} == {"f32"}
        assert reencoding(appliance, "int8").run() == ReencodeWork(encoded=chunks)
        check(appliance, chunks)


def test_an_unreadable_block_is_computed_and_the_rest_goes_on(settings: Settings, ingested: dict[str, Path]) -> None:
    settings = begin(ingested, settings, "f32")
    with Appliance.open(settings) as appliance:
        rows = appliance.catalog.all_blocks()
        torn, missing = (appliance.store.path(row) for row in rows[:2])
        torn.write_bytes(torn.read_bytes()[:-1])
        missing.unlink()
        work = reencoding(appliance, "int8").run()
        assert work == ReencodeWork(encoded=len(rows) - 2, recomputed=2)
        assert appliance.catalog.counters()["blocks_damaged"] == 2
        assert appliance.answer(QUESTION, strategy="reuse", top_k=len(rows), max_new_tokens=2).tiers == {
            "disk": len(rows)
        }
        assert len(list(appliance.home.quarantine.iterdir())) == 1
