"""Deleting: no byte of the document stays, whatever kept a copy of it; a kill in between is made good."""

import os
from pathlib import Path

import pytest

from appliance.cli import main  # noqa: F401 - loads what the process under test loads
from appliance.errors import UnknownDocument
from appliance.removal import REBUILD_FOLDER, open_and_remove
from appliance.service import Appliance
from storage.catalog import set_catalog_aside
from storage.home import Home
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import files_of, files_with, ready_blocks, snapshot

CANARY = "Xylocarpus7731"


@pytest.fixture
def secret(sample_files: Path) -> Path:
    path = sample_files / f"{CANARY}-plan.txt"
    path.write_text(f"The code word is {CANARY} and nobody may know it.\n\nAsk for {CANARY} at the gate of the yard.")
    return path


def assert_no_trace(root: Path) -> None:
    for needle in (CANARY, CANARY[:6]):
        assert files_with(root, needle.encode()) == []


def test_no_byte_stays(appliance: Appliance, sample_files: Path, secret: Path) -> None:
    appliance.ingest([sample_files])
    before = {row.key for row in ready_blocks(appliance.settings.home)}
    appliance.answer(f"Where is {CANARY}?", strategy="reuse")
    assert files_with(appliance.home.root, CANARY.encode()) != []  # the search can find it
    appliance.remove(appliance.find_document(secret.name))
    assert_no_trace(appliance.home.root)
    left = {row.key for row in ready_blocks(appliance.settings.home)}
    assert left < before
    assert set(files_of(appliance.home.blocks)) == {row.file for row in ready_blocks(appliance.settings.home)}
    assert appliance.store.pageable.blocks <= len(left)
    assert secret.exists()  # the user's own file is only referenced
    answer = appliance.answer(f"Where is {CANARY}?", strategy="reuse")
    assert CANARY not in "".join(source.text for source in answer.sources)
    appliance.close()
    assert_no_trace(appliance.home.root)


def test_vectors_leave_memory_too(appliance: Appliance, secret: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appliance.ingest([secret])
    appliance.answer("Where is it?")
    forgotten: list[int] = []
    monkeypatch.setattr(appliance.retriever, "forget", forgotten.append)
    appliance.remove(appliance.find_document(secret.name))
    assert forgotten == [appliance.catalog.collection("default").id]


def test_uploads_go_too(appliance: Appliance, secret: Path) -> None:
    folder = appliance.home.uploads / "1"
    folder.mkdir()
    upload = folder / secret.name
    upload.write_bytes(secret.read_bytes())
    other = folder / "other.txt"
    other.write_text("Another upload of the same visit.")
    appliance.ingest([upload, other])
    appliance.remove(appliance.find_document(str(upload)))
    assert not upload.exists()
    assert other.exists()
    assert_no_trace(appliance.home.root)
    appliance.remove(appliance.find_document(str(other)))
    assert list(appliance.home.uploads.iterdir()) == []


def test_copies_kept_for_inspection_go_too(appliance: Appliance, secret: Path, sample_files: Path) -> None:
    """A quarantined block (KV of the text), a damaged catalog set aside, and a damaged document file."""
    appliance.ingest([sample_files])
    for row in ready_blocks(appliance.settings.home):
        appliance.store.quarantine(row)  # and never computed again
    appliance.close()
    home = Home(appliance.settings.home)
    (home.quarantine / "catalog-1.db").write_bytes(home.catalog_file.read_bytes())
    assert files_with(home.root, CANARY.encode()) != []
    open_and_remove(home.root, secret.name)
    assert_no_trace(home.root)
    assert list(home.quarantine.iterdir()) == []


def test_two_paths_hold_the_document(appliance: Appliance, secret: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.txt"
    copy.write_bytes(secret.read_bytes())
    appliance.ingest([secret, copy])
    appliance.remove(appliance.find_document("copy.txt"))
    assert appliance.documents() == []
    assert_no_trace(appliance.home.root)


def test_a_block_two_documents_share_stays(appliance: Appliance, tmp_path: Path) -> None:
    """The same title and first page, another ending: the shared block lives until both are gone."""
    shared = "The first page is the same in both of these files, word for word, and fills one chunk by itself. " * 2
    for name, ending in (("one", "The end of one."), ("two", "Another end.")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "same.txt").write_text(f"{shared}\n\n{ending}")
    report = appliance.ingest([tmp_path / "one", tmp_path / "two"])
    blocks = ready_blocks(appliance.settings.home)
    assert len(blocks) < report.chunks
    first, second = appliance.documents()
    appliance.remove(first.id)
    assert appliance.documents()[0].chunks_with_kv == second.chunks
    answer = appliance.answer("Which page is the same?", strategy="reuse", top_k=20, max_new_tokens=4)
    assert answer.tiers == {"disk": second.chunks}
    appliance.remove(second.id)
    assert files_of(appliance.home.blocks) == {}


def test_names_of_documents(appliance: Appliance, sample_files: Path, tmp_path: Path) -> None:
    appliance.ingest([sample_files])
    identifier = appliance.find_document("rules.md")
    for name in (identifier, str(sample_files / "rules.md"), "House rules"):
        assert appliance.find_document(name) == identifier
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "rules.md").write_text("# House rules\n\nQuite other rules hold here.")
    appliance.ingest([tmp_path / "deep"])
    with pytest.raises(UnknownDocument, match="means 2 documents: name one by its id"):
        appliance.find_document("rules.md")
    appliance.close()
    with pytest.raises(UnknownDocument, match="no document 'ghost'"):
        open_and_remove(appliance.settings.home, "ghost")


def test_what_a_kill_left_is_cleaned_up(appliance: Appliance, sample_files: Path, secret: Path) -> None:
    """Each state a kill can leave: a deletion half way, drafts, a document file and a block without rows."""
    appliance.ingest([sample_files])
    identifier = appliance.find_document(secret.name)
    expected = snapshot(appliance.settings.home)
    stored = appliance.home.documents / f"{identifier}.json"
    copy, block = stored.read_bytes(), appliance.store.path(ready_blocks(appliance.settings.home)[0]).read_bytes()
    appliance.catalog.begin_delete(identifier)
    appliance.close()
    home = appliance.home
    (home.temporary / "0.tmp").write_text(CANARY)
    (home.documents / f"{'0' * 32}.json").write_bytes(copy)
    (home.blocks / f"{'0' * 64}.int8.0.safetensors").write_bytes(block)
    (home.uploads / "2").mkdir()
    (home.uploads / "2" / "left.txt").write_text(CANARY)
    (home.root / REBUILD_FOLDER).mkdir()
    (home.root / REBUILD_FOLDER / "catalog.db").write_text(CANARY)
    with Appliance.open(appliance.settings) as opened:
        assert_no_trace(home.root)
        assert not (home.root / REBUILD_FOLDER).exists()
        held = snapshot(home.root)
        assert held["files"].keys() < expected["files"].keys()
        assert held["documents"] == [row for row in expected["documents"] if row.id != identifier]
        assert opened.ingest([sample_files]).chunks > 0
    assert snapshot(home.root)["files"] == expected["files"]


def test_removing_twice_after_a_kill(appliance: Appliance, sample_files: Path, secret: Path) -> None:
    appliance.ingest([sample_files])
    appliance.catalog.begin_delete(appliance.find_document(secret.name))
    appliance.close()
    with pytest.raises(UnknownDocument):
        open_and_remove(appliance.settings.home, secret.name)
    assert_no_trace(appliance.home.root)


def test_folders_are_the_owners_alone(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    appliance.answer(QUESTION, max_new_tokens=1)
    for path in [appliance.home.root, *appliance.home.root.rglob("*")]:
        if path.is_dir():
            assert path.stat().st_mode & 0o077 == 0
    assert os.path.commonpath([appliance.home.root, appliance.home.catalog_file]) == str(appliance.home.root)


def test_a_catalog_set_aside_is_not_read_again(appliance: Appliance, sample_files: Path, secret: Path) -> None:
    appliance.ingest([sample_files])
    appliance.close()
    moved = set_catalog_aside(appliance.home)
    assert [file.parent for file in moved] == [appliance.home.quarantine] * len(moved)
    assert files_with(appliance.home.quarantine, CANARY.encode()) != []
