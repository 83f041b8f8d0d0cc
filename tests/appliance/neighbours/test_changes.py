"""What becomes of blocks behind neighbours when documents come, change and go."""

from pathlib import Path

import torch

from appliance.neighbours import NeighbourWork
from appliance.rebuild import open_and_rebuild
from appliance.service import Appliance
from appliance.settings import Settings
from storage.contexts import is_near
from tests.appliance.neighbourhood import ask, check, chunk_ids, logits, near_rows, neighbouring


def test_a_new_document_changes_neighbours(ingested: Appliance, sample_files: Path) -> None:
    """The old block serves until the new one is ready, and goes then."""
    work = neighbouring(ingested)
    work.run()
    before = near_rows(ingested)
    new = sample_files / "valve.txt"
    new.write_text("The valve of the pump was replaced by Ines, and the pump in hall three was serviced in June.\n")
    ingested.ingest([new])
    chunks = chunk_ids(ingested)
    pending = [plan.chunk_id for plan in work.pending()]
    assert len(pending) > 1
    assert {chunk: row for chunk, row in near_rows(ingested).items() if chunk in before} == before
    assert work.run() == NeighbourWork(read=len(pending))
    after = near_rows(ingested)
    assert sorted(after) == sorted(chunks)
    assert {chunk for chunk in before if before[chunk] != after[chunk]} == set(pending) - {chunks[-1]}
    check(ingested)


def test_a_deleted_neighbour_takes_the_block_with_it(ingested: Appliance) -> None:
    """At once; the next question has the block without neighbours, and idle time reads the chunk again."""
    work = neighbouring(ingested)
    work.run()
    before = near_rows(ingested)
    gone = ingested.find_document("rules.md")
    ids = {chunk.id for chunk in ingested.catalog.chunks_of(gone)}
    hit = {
        chunk
        for chunk, row in before.items()
        if ids & set(ingested.catalog.neighbours_of(row.key)) and chunk not in ids
    }
    assert hit
    plain = logits(ingested, sorted(hit), near=False)
    ingested.remove(gone)
    assert set(near_rows(ingested)) == set(before) - ids - hit
    execution, source = ask(ingested, sorted(hit))
    assert (source.damaged, source.settle(), source.warnings()) == (False, [], [])
    assert torch.equal(execution.logits, plain)
    check(ingested)
    assert work.run().read == len(hit)
    assert set(near_rows(ingested)) == set(chunk_ids(ingested))
    check(ingested)


def test_a_changed_neighbour_takes_the_block_with_it(read_here: Appliance, sample_files: Path) -> None:
    work = neighbouring(read_here)
    work.run()
    before = near_rows(read_here)
    (sample_files / "rules.md").write_text("# House rules\n\nNobody enters hall three but Ines.\n")
    read_here.ingest([sample_files])
    assert len(near_rows(read_here)) < len(before)
    check(read_here)
    assert work.run().error is None
    assert set(near_rows(read_here)) == set(chunk_ids(read_here))
    check(read_here)


def test_a_document_read_again_takes_the_block_with_it(read_here: Appliance, sample_files: Path) -> None:
    """Its own file was lost: the same content gets other chunks, and the old lists point nowhere."""
    work = neighbouring(read_here)
    work.run()
    document = read_here.find_document("pump.txt")
    (read_here.home.documents / f"{document}.json").unlink()
    read_here.ingest([sample_files])
    assert any(is_near(row.context) for row in read_here.catalog.deleting_blocks())
    logits(read_here, chunk_ids(read_here)[:3])
    assert work.run().error is None
    assert set(near_rows(read_here)) == set(chunk_ids(read_here))
    read_here.store.recover()  # blocks without neighbours of the old chunks
    check(read_here)


def test_a_rebuilt_catalog_has_them_computed_again(settings: Settings, sample_files: Path) -> None:
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files])
        chunks = len(chunk_ids(appliance))
        neighbouring(appliance).run()
    assert open_and_rebuild(settings).blocks == chunks
    with Appliance.open(settings) as appliance:
        assert near_rows(appliance) == {}
        check(appliance)  # their files are gone
        assert neighbouring(appliance).run() == NeighbourWork(read=chunks)
        check(appliance)
