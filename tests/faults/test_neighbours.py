"""Kill -9, a full disk and damage around blocks behind neighbours: questions are right each time, nothing leaks."""

import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from appliance.neighbours import NeighbourWork
from appliance.service import Appliance
from appliance.settings import Settings
from appliance.verify import open_and_verify
from storage.contexts import is_near
from tests.appliance.fixtures import CHUNK_TOKENS, write_samples
from tests.appliance.neighbourhood import ask, check, chunk_ids, logits, near_rows, neighbouring, wanted
from tests.appliance.stored import files_of
from tests.faults.reencoding_program import settings_of
from tests.faults.test_disk_full import failing
from tests.faults.test_ingest_kill import Killing, started


@pytest.fixture(scope="module")
def killing() -> Iterator[Killing]:
    yield from started("tests.faults.neighbouring_program")


@pytest.fixture(scope="module")
def homes(tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ingested, and with every chunk read behind its neighbours; copied, never used."""
    folder = tmp_path_factory.mktemp("homes")
    settings = settings_of(folder / "plain", tiny_models / "language", tiny_models / "embedding")
    with Appliance.open(replace(settings, chunk_tokens=CHUNK_TOKENS)) as appliance:
        assert not appliance.ingest([write_samples(folder / "files")]).failed
        appliance.catalog.checkpoint()
        shutil.copytree(settings.home, folder / "near")
    with Appliance.open(replace(settings, home=folder / "near")) as appliance:
        assert neighbouring(appliance).run().error is None
    return {"plain": folder / "plain", "near": folder / "near"}


def begin(homes: dict[str, Path], settings: Settings, name: str) -> Settings:
    shutil.copytree(homes[name], settings.home)
    return replace(settings, pageable_bytes=0)


TARGETS = [
    "models.neighbour_reader:NeighbourReader.read",
    "system:rename",
    "storage.catalog:Catalog.publish_block",
]


@pytest.mark.parametrize("target", TARGETS)
def test_killed_while_reading(killing: Killing, settings: Settings, homes: dict[str, Path], target: str) -> None:
    """In the middle of it; a new process serves what is there, and finishes the work to the same bytes."""
    settings = begin(homes, settings, "plain")
    with Appliance.open(settings) as appliance:
        chunks = chunk_ids(appliance)
    calls = 2 if target == "system:rename" else 3
    status, _ = killing.run(target, calls, settings.home, settings.model, settings.embedding)
    assert status == -signal.SIGKILL
    with Appliance.open(settings) as appliance:
        check(appliance)
        execution, source = ask(appliance, chunks)
        assert (execution.tiers, source.warnings()) == ({"disk": len(chunks)}, [])
        done = len(near_rows(appliance))
        assert 0 < done < len(chunks)
        assert neighbouring(appliance).run() == NeighbourWork(read=len(chunks) - done)
        check(appliance)
    assert files_of(settings.home / "blocks") == files_of(homes["near"] / "blocks")
    assert open_and_verify(settings.home).problems == ()


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        ("storage.catalog:Catalog.begin_block_delete", 1),  # the first is that of opening
        ("system:unlink", 0),
        ("storage.catalog:Catalog.finish_delete", 0),
    ],
)
def test_killed_while_a_neighbour_is_deleted(
    killing: Killing, settings: Settings, homes: dict[str, Path], target: str, calls: int
) -> None:
    """The deletion has begun: from there on no block that saw the document is served, and none is left of it."""
    settings = begin(homes, settings, "near")
    with Appliance.open(settings) as appliance:
        gone = {chunk.id for chunk in appliance.catalog.chunks_of(appliance.find_document("rules.md"))}
        saw = {
            row.file for row in near_rows(appliance).values() if gone & set(appliance.catalog.neighbours_of(row.key))
        }
        assert saw
    status, _ = killing.run(target, calls, settings.home, settings.model, settings.embedding, "rules.md")
    assert status == -signal.SIGKILL
    with Appliance.open(settings) as appliance:
        assert not saw & set(files_of(appliance.home.blocks))
        left = chunk_ids(appliance)
        assert not gone & set(left)
        plain = logits(appliance, left[:2], near=False)
        if not set(left[:2]) & set(near_rows(appliance)):
            assert torch.equal(logits(appliance, left[:2]), plain)
        assert neighbouring(appliance).run().error is None
        assert sorted(near_rows(appliance)) == left
        check(appliance)
    assert open_and_verify(settings.home).problems == ()


@pytest.mark.parametrize("name", ["preallocate", "fsync"])
def test_a_full_disk_ends_the_run(settings: Settings, homes: dict[str, Path], name: str) -> None:
    settings = begin(homes, settings, "plain")
    with Appliance.open(settings) as appliance:
        chunks = chunk_ids(appliance)
        with failing(name, 2):
            work = neighbouring(appliance).run()
        assert work.error is not None
        assert "no room left" in work.error
        assert work.read < len(chunks)
        check(appliance)
        assert neighbouring(appliance).run() == NeighbourWork(read=len(chunks) - work.read)
        check(appliance)
    assert open_and_verify(settings.home).problems == ()


def test_damage_serves_the_block_without_neighbours(settings: Settings, homes: dict[str, Path]) -> None:
    """Quarantined, told, counted once; the passage is not computed, and idle time reads it again."""
    settings = begin(homes, settings, "near")
    with Appliance.open(settings) as appliance:
        chunks = chunk_ids(appliance)
        rows = near_rows(appliance)
        both = chunks[:2]
        expected = logits(appliance, both, near=False)
        for chunk in both:
            file = appliance.store.path(rows[chunk])
            data = bytearray(file.read_bytes())
            data[rows[chunk].header_bytes + len(data) // 3] ^= 1  # of a layer in the middle: some are placed by then
            file.write_bytes(data)
        execution, source = ask(appliance, both)
        assert torch.equal(execution.logits, expected)
        assert execution.tiers == {"disk": 2}
        assert [line.startswith("damaged block: ") for line in source.warnings()] == [True, True]
        assert source.settle() == []
        assert appliance.catalog.counters()["blocks_damaged"] == 2
        assert sorted(near_rows(appliance)) == chunks[2:]
        assert len(list(appliance.home.quarantine.iterdir())) == 2
        assert torch.equal(logits(appliance, both), expected)
        assert neighbouring(appliance).run() == NeighbourWork(read=2)
        check(appliance)
    assert files_of(settings.home / "blocks") == files_of(homes["near"] / "blocks")


def test_both_blocks_damaged_is_computed(settings: Settings, homes: dict[str, Path]) -> None:
    settings = begin(homes, settings, "near")
    with Appliance.open(settings) as appliance:
        chunk = chunk_ids(appliance)[0]
        expected = logits(appliance, [chunk], near=False)
        found = wanted(appliance, [chunk])[0]
        for row in (found.row, found.near):
            assert row is not None
            appliance.store.path(row).unlink()
        execution, source = ask(appliance, [chunk])
        assert execution.tiers == {"computed": 1}
        assert float((execution.logits - expected).abs().max()) < 1e-3
        assert source.settle() == []
        assert appliance.catalog.counters()["blocks_damaged"] == 2
        assert torch.equal(logits(appliance, [chunk], near=False), expected)
        assert neighbouring(appliance).run() == NeighbourWork(read=1)
        check(appliance)


def test_a_damaged_neighbour_is_computed_for_this_once(settings: Settings, homes: dict[str, Path]) -> None:
    settings = begin(homes, settings, "plain")
    with Appliance.open(settings) as appliance:
        chunks = chunk_ids(appliance)
        base = next(row for row in appliance.catalog.all_blocks() if not is_near(row.context))
        appliance.store.path(base).unlink()
        work = neighbouring(appliance).run()
        assert (work.error, work.read) == (None, len(chunks))
        assert appliance.catalog.counters()["blocks_damaged"] == 1
        assert appliance.catalog.block(base.key) is None  # the job of missing KV computes it, not this one
    assert {name for name in files_of(homes["near"] / "blocks") if name != base.file} == set(
        files_of(settings.home / "blocks")
    )


def test_a_block_retired_after_it_was_looked_up_is_no_damage(settings: Settings, homes: dict[str, Path]) -> None:
    settings = begin(homes, settings, "near")
    with Appliance.open(settings) as appliance:
        chunk = chunk_ids(appliance)[0]
        expected = logits(appliance, [chunk], near=False)
        looked_up = wanted(appliance, [chunk])
        assert looked_up[0].near is not None
        appliance.store.retire([looked_up[0].near])
        execution, source = ask(appliance, [chunk], blocks=looked_up)
        assert torch.equal(execution.logits, expected)
        assert (source.warnings(), source.damaged, source.settle()) == ([], False, [])
        assert "blocks_damaged" not in appliance.catalog.counters()
