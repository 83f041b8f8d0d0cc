"""Reading chunks behind neighbours over an open appliance, and asking over what came of it."""

from collections.abc import Sequence
from typing import Any

import torch

from appliance.block_source import StoredBlocks, WantedBlock, wanted_blocks
from appliance.neighbours import Neighbouring, NeighbourSettings
from appliance.service import Appliance
from models.executor import Execution
from models.neighbour_reader import NeighbourReader
from models.strategies import find_strategy
from storage.blocks import EncodedBlock, block_key
from storage.blocks.encode import encode_block
from storage.catalog import BlockRow
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import files_of

# About three chunks of the samples fit the tiny model's window before a fourth.
SETTINGS = NeighbourSettings(neighbours=3)


def neighbouring(appliance: Appliance, settings: NeighbourSettings = SETTINGS, **options: Any) -> Neighbouring:
    parts = (appliance.catalog, appliance.store, appliance.engine, appliance.turns, appliance.retriever.index)
    return Neighbouring(*parts, settings=settings, **options)


def chunk_ids(appliance: Appliance) -> list[int]:
    catalog = appliance.catalog
    return sorted(chunk.id for document in catalog.documents() for chunk in catalog.chunks_of(document.id))


def near_rows(appliance: Appliance) -> dict[int, BlockRow]:
    """The block that would be served, by chunk."""
    return appliance.catalog.near_blocks(appliance.engine.fingerprint, chunk_ids(appliance))


def wanted(
    appliance: Appliance, ids: Sequence[int], near: bool = True, collection: str = "default"
) -> list[WantedBlock]:
    chunks = appliance.catalog.chunks(ids)
    return wanted_blocks(appliance.engine, appliance.catalog, collection, chunks, near)


def ask(
    appliance: Appliance, ids: Sequence[int], near: bool = True, blocks: list[WantedBlock] | None = None
) -> tuple[Execution, StoredBlocks]:
    """`reuse` over these chunks' blocks (as looked up before, if given); not settled yet."""
    blocks = blocks or wanted(appliance, ids, near)
    prompt = appliance.engine.template.prompt([each.token_ids for each in blocks], QUESTION)
    source = StoredBlocks(appliance.engine, appliance.catalog, appliance.store, "default", blocks[::-1])
    execution = appliance.engine.executor.execute(prompt, find_strategy("reuse").plan(prompt), source)
    return execution, source


def logits(appliance: Appliance, ids: Sequence[int], near: bool = True) -> torch.Tensor:
    execution, source = ask(appliance, ids, near)
    assert source.settle() == []
    return execution.logits


def stored(appliance: Appliance, row: BlockRow) -> EncodedBlock:
    lease = appliance.store.load(row)
    try:
        block = lease.block
        return EncodedBlock(block.header, block.data.copy())
    finally:
        lease.release()


def made_anew(appliance: Appliance, chunk: int, row: BlockRow) -> tuple[EncodedBlock, Any]:
    """What a block behind neighbours must hold, and its scores, from the neighbours' stored blocks."""
    engine, catalog = appliance.engine, appliance.catalog
    own, *others = wanted(appliance, [chunk, *catalog.neighbours_of(row.key)], near=False)
    bases = [stored(appliance, other.row) for other in others if other.row is not None]
    reading = NeighbourReader(engine.reader, engine.executor.placers).read(own.token_ids, bases)
    header = stored(appliance, row).header
    assert header.neighbours == tuple(base.header.key for base in bases)
    assert row.key == block_key(engine.fingerprint, "default", "self", row.context, own.token_ids)
    return encode_block(header, reading.keys, reading.values), reading.outside_mass


def check(appliance: Appliance) -> None:
    """Files and rows agree, nothing is left over, and what is served is what it says it is."""
    rows = appliance.catalog.all_blocks()
    assert {row.state for row in rows} <= {"ready"}
    assert set(files_of(appliance.home.blocks)) == {row.file for row in rows}
    assert list(appliance.home.temporary.iterdir()) == []
    for chunk, row in near_rows(appliance).items():
        expected, mass = made_anew(appliance, chunk, row)
        assert stored(appliance, row).data.tobytes() == expected.data.tobytes()
        base = wanted(appliance, [chunk], near=False)[0].key
        assert appliance.catalog.craft_scores([base])[base].tolist() == mass[0].tolist()
