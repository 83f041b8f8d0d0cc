"""What a process leaves behind for `status`: its memory and what went wrong there; a reader leaves nothing."""

import json
from dataclasses import replace
from pathlib import Path

from appliance.service import Appliance
from appliance.status import count_memory_troubles, read_status, remember_memory
from tests.appliance.fixtures import QUESTION, Cli


def test_memory_of_the_last_process(appliance: Appliance, sample_files: Path, cli: Cli) -> None:
    appliance.ingest([sample_files])
    appliance.answer(QUESTION, strategy="reuse", top_k=2)
    memory = appliance.store.memory()
    memory["pinned"] |= {"refusals": 2, "reason": "no memory can be locked"}
    memory["gpu"] |= {"failures": 3}
    memory["leases"]["expired"] = 4
    remember_memory(appliance.home, memory, "a quarter of what is free", "the disk is full")
    count_memory_troubles(appliance.catalog, memory)
    found = read_status(appliance.settings)
    assert found["memory"] == {**memory, "reason": "a quarter of what is free"}
    assert found["memory"]["pageable"]["budget_bytes"] == 64 << 20
    assert found["idle_failure"] == "the disk is full"
    troubles = {"tier_refusals": 2, "tier_failures": 3, "leases_expired": 4}
    assert found["counters"].items() >= troubles.items()
    count_memory_troubles(appliance.catalog, memory)
    assert read_status(appliance.settings)["counters"]["leases_expired"] == 8
    spoken = cli("status", "--model", appliance.settings.model).out
    for line in (
        "memory        gpu 0 B, pinned 0 B, pageable 67.1 MB: a quarter of what is free",
        "pinned        refused memory 2 times, last: no memory can be locked",
        "gpu           failed 3 times: its blocks were read from disk",
        "leases        4 were held for too long",
        "idle work     could not go on: the disk is full",
    ):
        assert f"{line}\n" in spoken


def test_memory_without_troubles_counts_nothing(appliance: Appliance, sample_files: Path) -> None:
    remember_memory(appliance.home, appliance.store.memory(), "asked for")
    assert not (appliance.home.root / "engine.json").exists()  # no model was loaded: nothing to say
    appliance.ingest([sample_files])
    remember_memory(appliance.home, appliance.store.memory(), "asked for")
    count_memory_troubles(appliance.catalog, appliance.store.memory())
    found = read_status(appliance.settings)
    assert found["memory"]["reason"] == "asked for"
    assert not {"tier_refusals", "tier_failures", "leases_expired"} & found["counters"].keys()
    assert found["engine"].keys().isdisjoint({"memory", "idle_failure"})


def test_memory_that_cannot_be_kept_or_read_is_no_matter(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    note = appliance.home.root / "engine.json"
    chosen = note.read_text()
    for garbled in ("{", "[1]", "3", "[" * 100_000):
        note.write_text(json.dumps({**json.loads(chosen), "memory": garbled}))
        assert read_status(appliance.settings)["memory"] is None
    for garbled in ("{", "[1]", "[" * 100_000):
        note.write_text(garbled)
        remember_memory(appliance.home, appliance.store.memory(), "asked for")
        assert note.read_text() == garbled
        assert read_status(appliance.settings)["engine"] == {}
    note.unlink()
    note.mkdir()
    remember_memory(appliance.home, appliance.store.memory(), "asked for")


def test_a_reader_writes_nothing(appliance: Appliance, sample_files: Path) -> None:
    """Beside a process that writes: not its choices, not digests of weights, not what was asked for."""
    appliance.ingest([sample_files])
    root, questions = appliance.home.root, appliance.catalog.questions()
    (root / "digests.json").unlink()
    before = {file: file.read_bytes() for file in root.rglob("*") if file.is_file() and "catalog" not in file.name}
    with Appliance.open(replace(appliance.settings, profile="paper"), read_only_if_busy=True) as reader:
        assert not reader.writable
        assert reader.answer(QUESTION, strategy="reuse", top_k=2).sources
    after = {file: file.read_bytes() for file in root.rglob("*") if file.is_file() and "catalog" not in file.name}
    assert after == before
    assert appliance.catalog.questions() == questions
