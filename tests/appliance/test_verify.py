"""`verify` finds what is damaged; `verify --rebuild` makes the catalog again from what lies on disk."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ApplianceError
from appliance.rebuild import open_and_rebuild
from appliance.removal import REBUILD_FOLDER
from appliance.service import Appliance
from appliance.settings import Settings
from appliance.verify import open_and_verify
from models.errors import ModelMissing
from storage.catalog import Catalog
from storage.errors import CatalogDamaged, DiskFull
from storage.home import Home
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import files_of, ready_blocks, snapshot


@pytest.fixture
def stored(settings: Settings, sample_files: Path) -> Settings:
    """A data folder with the samples in it, closed."""
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files])
    return settings


def answer_ids(settings: Settings) -> tuple[int, ...]:
    with Appliance.open(settings) as appliance:
        return appliance.answer(QUESTION, strategy="reuse", max_new_tokens=12).answer_ids


def contents(root: Path) -> dict[str, Any]:
    """What a rebuild must find again: everything but chunk numbers, times and order."""
    held = snapshot(root)
    names = {row.id: row.name for row in held["collections"]}
    return {
        "documents": {
            row.id: replace(row, collection_id=0, added_at="")
            for row in held["documents"]
            if row.collection_id in names
        },
        "chunks": {
            name: [replace(chunk, id=0, collection_id=0) for chunk in chunks] for name, chunks in held["chunks"].items()
        },
        "kv": held["kv"],
        "paths": {name: [source.path for source in sources] for name, sources in held["sources"].items()},
        "blocks": [replace(row, collection_id=0) for row in held["blocks"]],
        "files": held["files"],
        "faults": held["faults"],
    }


def test_all_is_well(stored: Settings) -> None:
    report = open_and_verify(stored.home)
    assert (report.blocks, report.documents, report.blocks_damaged, report.problems) == (
        len(ready_blocks(stored.home)),
        3,
        0,
        (),
    )


def test_damaged_blocks_are_set_aside_and_computed_again(
    stored: Settings, sample_files: Path, reads: list[str]
) -> None:
    expected, before = answer_ids(stored), files_of(Home(stored.home).blocks)
    home = Home(stored.home)
    flipped, missing = sorted(home.blocks.iterdir())[:2]
    data = bytearray(flipped.read_bytes())
    data[-5000] ^= 4
    flipped.write_bytes(data)
    missing.unlink()
    report = open_and_verify(stored.home)
    assert report.blocks_damaged == 2
    assert [problem.split(":")[0] for problem in report.problems] == [flipped.name, missing.name]
    assert [file.name for file in home.quarantine.iterdir()] == [flipped.name]
    assert open_and_verify(stored.home).problems == ()  # out of use
    with Appliance.open(stored) as appliance:
        assert appliance.status()["blocks_damaged"] == 2
        assert not appliance.ingest([sample_files]).failed
    assert len(reads) == 2
    assert files_of(home.blocks) == before
    assert answer_ids(stored) == expected


@pytest.mark.parametrize("damage", ["garbled", "missing", "another"])
def test_a_damaged_document_file_is_made_again(stored: Settings, sample_files: Path, damage: str) -> None:
    home = Home(stored.home)
    before = files_of(home.documents)
    first, second = sorted(home.documents.iterdir())[:2]
    if damage == "garbled":
        first.write_bytes(first.read_bytes()[:-40])
    elif damage == "missing":
        first.unlink()
    else:
        first.write_bytes(second.read_bytes())
    report = open_and_verify(stored.home)
    assert len(report.problems) == 1
    assert "ingest" in report.problems[0]
    assert "\n" not in report.problems[0]
    with Appliance.open(stored) as appliance:
        again = appliance.ingest([sample_files])
        assert [entry.state for entry in again.documents].count("unchanged") == 2
    assert files_of(home.documents) == before
    assert open_and_verify(stored.home).problems == ()


@pytest.mark.parametrize("damage", ["gone", "garbled", "torn", "fine"])
def test_rebuild_finds_everything_again(stored: Settings, sample_files: Path, reads: list[str], damage: str) -> None:
    expected, before = answer_ids(stored), contents(stored.home)
    catalog = Home(stored.home).catalog_file
    if damage == "gone":
        catalog.unlink()
    elif damage == "garbled":
        catalog.write_bytes(b"no database at all " * 3000)
    elif damage == "torn":
        catalog.write_bytes(catalog.read_bytes()[:-700])
    if damage != "fine":
        with pytest.raises(ApplianceError, match="run `appliance verify --rebuild`"):
            Appliance.open(stored)
        with pytest.raises(CatalogDamaged, match="run `appliance verify --rebuild`"):
            open_and_verify(stored.home)
    report = open_and_rebuild(stored)
    assert (report.documents, report.blocks, report.problems) == (3, len(before["blocks"]), ())
    assert contents(stored.home) == before
    assert not (stored.home / REBUILD_FOLDER).exists()
    assert answer_ids(stored) == expected
    with Appliance.open(stored) as appliance:
        again = appliance.ingest([sample_files])
    assert {entry.state for entry in again.documents} == {"unchanged"}
    assert reads == []


def test_rebuild_names_what_it_cannot_use(stored: Settings) -> None:
    home = Home(stored.home)
    first_document = min(home.documents.iterdir())
    first_document.write_text("{}")
    block = min(home.blocks.iterdir())
    block.write_bytes(b"\xff" * 100)
    home.catalog_file.unlink()
    report = open_and_rebuild(stored)
    assert report.documents == 2
    assert any(first_document.name in problem for problem in report.problems)
    assert all("\n" not in problem for problem in report.problems)
    with Appliance.open(stored) as appliance:
        assert len(appliance.documents()) == 2


@pytest.mark.parametrize("failure", ["model", "disk"])
def test_a_rebuild_that_fails_keeps_the_old_catalog(
    stored: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    before = contents(stored.home)
    if failure == "model":
        with pytest.raises(ModelMissing):
            open_and_rebuild(replace(stored, embedding=str(tmp_path / "none")))
    else:

        def refuse(*_arguments: object) -> None:
            raise DiskFull("no room left: free some")

        with monkeypatch.context() as full:
            full.setattr(Catalog, "publish_block", refuse)
            with pytest.raises(DiskFull):
                open_and_rebuild(stored)
    assert contents(stored.home) == before
    with Appliance.open(stored) as appliance:
        assert len(appliance.documents()) == 3
    assert contents(stored.home) == before


@pytest.mark.parametrize("moment", ["before", "between"])
def test_a_rebuild_that_is_killed_can_be_repeated(stored: Settings, moment: str) -> None:
    """Before the old catalog is set aside it is still in use; after, every command asks for a rebuild."""
    before, home = contents(stored.home), Home(stored.home)
    (home.root / REBUILD_FOLDER).mkdir()
    (home.root / REBUILD_FOLDER / "catalog.db").write_bytes(b"half")
    if moment == "between":
        home.catalog_file.rename(home.quarantine / "catalog-1.db")
        with pytest.raises(ApplianceError, match="verify --rebuild"):
            Appliance.open(stored)
        open_and_rebuild(stored)
    with Appliance.open(stored) as appliance:
        assert len(appliance.documents()) == 3
    assert not (home.root / REBUILD_FOLDER).exists()
    assert contents(stored.home) == before
