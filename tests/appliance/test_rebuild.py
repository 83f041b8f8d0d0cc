"""`verify --rebuild` throws nothing away: KV of other models, collections' settings, documents of a whole catalog."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from appliance.errors import NoDocuments
from appliance.rebuild import WouldLose, open_and_rebuild
from appliance.removal import open_and_remove
from appliance.service import Appliance
from appliance.settings import Settings
from storage.catalog import Catalog
from storage.errors import EmbeddingMismatch
from storage.home import Home
from tests.appliance.fixtures import save_tiny_embedding
from tests.appliance.stored import files_of, ready_blocks, snapshot


@pytest.fixture
def stored(settings: Settings, sample_files: Path) -> Settings:
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files])
    return settings


@pytest.fixture
def two_models(stored: Settings, tmp_path: Path, sample_files: Path) -> tuple[Settings, Settings]:
    """The same documents read by two models; returns the settings of both."""
    import torch
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "another"
    shutil.copytree(stored.model, folder)
    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[0]
    weights[name] = weights[name] + torch.ones_like(weights[name]) * 0.01
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    other = replace(stored, model=str(folder))
    with Appliance.open(other) as appliance:
        appliance.ingest([sample_files])
    assert len({row.fingerprint for row in ready_blocks(stored.home)}) == 2
    return stored, other


def test_a_readable_catalog_gives_the_other_models_blocks_back(two_models: tuple[Settings, Settings]) -> None:
    before = {row.key: row for row in ready_blocks(two_models[0].home)}
    files = files_of(Home(two_models[0].home).blocks)
    for settings in two_models:
        report = open_and_rebuild(settings)
        assert (report.blocks, report.blocks_kept, report.problems) == (len(before), 0, ())
        assert {row.key: row for row in ready_blocks(settings.home)} == before
        with Appliance.open(settings):
            pass
    assert files_of(Home(two_models[0].home).blocks) == files


def test_a_lost_catalog_keeps_the_other_models_files_until_they_are_claimed(
    two_models: tuple[Settings, Settings], reads: list[str], sample_files: Path
) -> None:
    one, other = two_models
    home = Home(one.home)
    before, files = len(ready_blocks(one.home)), files_of(home.blocks)
    home.catalog_file.unlink()
    (home.blocks / f"{'0' * 64}.int8.0.safetensors").write_bytes(b"garbage" * 1000)
    report = open_and_rebuild(one)
    assert (report.blocks, report.blocks_kept) == (before // 2, before // 2)
    for _ in range(2):
        with Appliance.open(one):
            assert files_of(home.blocks) == files
    assert open_and_rebuild(one).blocks_kept == before // 2
    claimed = open_and_rebuild(other)
    assert (claimed.blocks, claimed.blocks_kept) == (before, 0)
    with Appliance.open(other) as appliance:
        appliance.ingest([sample_files])
        assert appliance.catalog.unclaimed() == []
    assert reads == []
    assert files_of(home.blocks) == files


def test_deleting_a_document_leaves_no_file_that_may_be_of_it(two_models: tuple[Settings, Settings]) -> None:
    one, _ = two_models
    home = Home(one.home)
    home.catalog_file.unlink()
    open_and_rebuild(one)
    open_and_remove(one.home, "pump.txt")
    assert set(files_of(home.blocks)) == {row.file for row in ready_blocks(one.home)}
    with Catalog.open(home, read_only=True) as catalog:
        assert catalog.unclaimed() == []


@pytest.mark.parametrize("damage", ["missing", "garbled"])
def test_a_whole_catalog_is_not_replaced_by_an_emptier_one(stored: Settings, damage: str) -> None:
    home = Home(stored.home)
    with Catalog.open(home, read_only=True) as catalog:
        document = catalog.find_document("pump.txt")
    file = home.documents / f"{document.id}.json"
    if damage == "missing":
        file.unlink()
    else:
        file.write_text("{}")
    before = snapshot(stored.home)
    with pytest.raises(WouldLose, match=f"'{document.title}' is not: run `appliance verify`") as caught:
        open_and_rebuild(stored)
    assert "\n" not in str(caught.value)
    assert snapshot(stored.home) == before


def test_what_was_being_deleted_does_not_come_back(stored: Settings) -> None:
    home = Home(stored.home)
    with Catalog.open(home) as catalog:
        document = catalog.find_document("pump.txt")
        catalog.begin_delete(document.id)
        catalog.count("blocks_damaged", 3)
    assert open_and_rebuild(stored).documents == 2
    with Appliance.open(stored) as appliance:
        assert document.id not in {found.id for found in appliance.documents()}
        assert appliance.status()["blocks_damaged"] == 3
    assert not (home.documents / f"{document.id}.json").exists()


def test_paths_times_and_policies_are_taken_over(stored: Settings, sample_files: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    shutil.copy(sample_files / "pump.txt", copy)
    with Appliance.open(stored) as appliance:
        appliance.ingest([copy])
        appliance.catalog.set_kv(appliance.find_document("copy.txt"), "idle")
    before = snapshot(stored.home)
    open_and_rebuild(stored)
    after = snapshot(stored.home)
    assert after["sources"] == before["sources"]
    assert {row.id: row.kv for row in after["documents"]} == {row.id: row.kv for row in before["documents"]}


@pytest.mark.parametrize("known", ["catalog", "file"])
def test_another_embedding_model_is_refused(stored: Settings, tmp_path: Path, known: str) -> None:
    home = Home(stored.home)
    if known == "file":
        with Catalog.open(home, read_only=True) as catalog:
            fingerprint = catalog.collection("default").embedding_fingerprint
        for file in home.documents.iterdir():
            file.write_text(json.dumps({**json.loads(file.read_text()), "embedding_fingerprint": fingerprint}))
        home.catalog_file.unlink()
    before = files_of(home.documents) | files_of(home.blocks)
    another = save_tiny_embedding(tmp_path / "embedding")
    config = another / "config.json"
    config.write_text(config.read_text().replace('"layer_norm_eps": 1e-12', '"layer_norm_eps": 1e-10'))
    with pytest.raises(EmbeddingMismatch, match="collection 'default' was begun with another embedding model"):
        open_and_rebuild(replace(stored, embedding=str(another)))
    assert files_of(home.documents) | files_of(home.blocks) == before
    assert home.catalog_file.exists() == (known == "catalog")


@pytest.mark.parametrize("known", ["catalog", "file"])
def test_a_collection_keeps_its_chunk_size(stored: Settings, known: str) -> None:
    home = Home(stored.home)
    if known == "file":
        for file in home.documents.iterdir():
            file.write_text(json.dumps({**json.loads(file.read_text()), "chunk_tokens": stored.chunk_tokens}))
        home.catalog_file.unlink()
    open_and_rebuild(replace(stored, chunk_tokens=stored.chunk_tokens * 2))
    with Catalog.open(home, read_only=True) as catalog:
        assert catalog.collection("default").chunk_tokens == stored.chunk_tokens


@pytest.mark.parametrize("newest", [0, 1])
def test_of_two_documents_with_one_path_the_newest_stays(stored: Settings, newest: int) -> None:
    home = Home(stored.home)
    first, second = sorted(home.documents.iterdir())[:2]
    path = json.loads(first.read_text())["source_paths"]
    second.write_text(json.dumps({**json.loads(second.read_text()), "source_paths": path}))
    os.utime((first, second)[newest], ns=(2 * 10**18, 2 * 10**18))
    os.utime((first, second)[1 - newest], ns=(10**18, 10**18))
    home.catalog_file.unlink()
    assert open_and_rebuild(stored).documents == 2
    with Appliance.open(stored) as appliance:
        found = {document.id for document in appliance.documents()}
    assert (first, second)[newest].stem in found
    assert (first, second)[1 - newest].stem not in found


@pytest.mark.parametrize("catalog", ["none", "empty", "garbled"])
def test_nothing_to_rebuild_from(settings: Settings, catalog: str) -> None:
    home = Home(settings.home)
    home.create()
    if catalog == "empty":
        Catalog.open(home).close()
    elif catalog == "garbled":
        home.catalog_file.write_bytes(b"garbage" * 2000)
    with pytest.raises(NoDocuments, match="holds no stored documents to rebuild from") as caught:
        open_and_rebuild(settings)
    assert "\n" not in str(caught.value)
    assert (str(home.catalog_file) in str(caught.value)) == (catalog == "garbled")
