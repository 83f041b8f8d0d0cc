"""A file that cannot be read or removed costs itself: it is counted, named, tried again, and nothing else stops."""

import errno
import os
from pathlib import Path

import pytest

from appliance.removal import open_and_remove
from appliance.service import Appliance
from appliance.settings import Settings
from appliance.verify import open_and_verify
from storage.blocks.reader import read_block_file
from storage.buffers import AlignedBuffers
from storage.catalog import Catalog
from storage.errors import FilesStay
from storage.home import Home
from storage.store import STUCK_COUNTER, BlockStore, StoreSettings, expectation
from tests.appliance.fixtures import QUESTION
from tests.appliance.stored import ready_blocks
from tests.storage.blocks.builders import make_block
from tests.storage.catalog.builders import new_document, open_catalog


@pytest.fixture
def stored(settings: Settings, sample_files: Path) -> Settings:
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files])
    return settings


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ENAMETOOLONG])
def test_an_error_about_one_file_is_a_damaged_block(
    stored: Settings, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    victim = ready_blocks(stored.home)[0]
    opened = os.open

    def refuse(path: Path, *arguments: int) -> int:
        if Path(path).name == victim.file:
            raise OSError(error, os.strerror(error))
        return opened(path, *arguments)

    blocks = len(ready_blocks(stored.home))
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        report = open_and_verify(stored.home)
    assert (report.blocks, report.blocks_damaged) == (blocks, 1)
    assert os.strerror(error) in report.problems[0]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_an_error_about_the_process_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a"))
        store = BlockStore(Home(tmp_path), catalog, StoreSettings())
        row = store.publish(make_block("a" * 64), 1, [1])

        def refuse(*_: object) -> int:
            raise OSError(error, os.strerror(error))

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refuse)
            with pytest.raises(OSError, match=os.strerror(error)):
                read_block_file(store.path(row), expectation(row), AlignedBuffers())


def folder_in_place(file: Path) -> None:
    """What no unlink removes, whoever asks."""
    file.unlink()
    file.mkdir()
    (file / "inside").touch()


@pytest.mark.parametrize("what", ["block", "document"])
def test_a_file_that_stays_does_not_keep_the_document(stored: Settings, what: str) -> None:
    home = Home(stored.home)
    with Catalog.open(home, read_only=True) as catalog:
        document = catalog.find_document("pump.txt")
        files = {row.file for row in catalog.blocks_only_of(document.id)}
    stuck = home.blocks / min(files) if what == "block" else home.documents / f"{document.id}.json"
    folder_in_place(stuck)
    with pytest.raises(FilesStay, match="is deleted, but") as caught:
        open_and_remove(home.root, document.id)
    assert str(stuck) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [file.name for file in home.blocks.iterdir() if file.name in files] == (
        [stuck.name] if what == "block" else []
    )
    with Appliance.open(stored) as appliance:  # the folder opens, and answers
        assert len(appliance.documents()) == 2
        assert appliance.answer(QUESTION, max_new_tokens=2).sources
        assert appliance.status()["counters"][STUCK_COUNTER] >= 2
    assert any(str(stuck) in problem for problem in open_and_verify(home.root).problems) == (what == "block")
    (stuck / "inside").unlink()
    stuck.rmdir()
    with Appliance.open(stored) as appliance:
        assert appliance.catalog.deleting_blocks() == []
        assert appliance.catalog.deleting_documents() == []
    assert open_and_verify(home.root).problems == ()


def test_a_damaged_block_that_cannot_be_moved_is_out_of_use(stored: Settings) -> None:
    home = Home(stored.home)
    row = ready_blocks(stored.home)[0]
    folder_in_place(home.blocks / row.file)
    report = open_and_verify(home.root)
    assert report.blocks_damaged == 1
    assert row.key not in {found.key for found in ready_blocks(stored.home)}
    assert list(home.quarantine.iterdir()) == []
    assert (home.blocks / row.file / "inside").exists()


def test_strays_that_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    with open_catalog(tmp_path) as catalog:
        store = BlockStore(home, catalog, StoreSettings())
        for name in ("a.tmp", "b.tmp"):
            (home.temporary / name).touch()
        unlink = os.unlink

        def refuse(path: Path) -> None:
            if Path(path).name == "a.tmp":
                raise PermissionError(errno.EPERM, "immutable")
            unlink(path)

        monkeypatch.setattr(
            "storage.store.retire_file",
            lambda path, **_: _removed(path, refuse),
        )
        assert store.recover() == 1
        assert catalog.counters() == {STUCK_COUNTER: 1}
    assert [file.name for file in home.temporary.iterdir()] == ["a.tmp"]


def _removed(path: Path, unlink: object) -> None:
    from storage.durable import SYSTEM, retire_file

    retire_file(path, sync_directory=False, operations=type(SYSTEM)(unlink=unlink))  # type: ignore[arg-type]


def test_lost_files_are_found_with_one_look(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one", "two", "three"]))
        store = BlockStore(Home(tmp_path), catalog, StoreSettings())
        gone, short, fine = (store.publish(make_block(key * 64), 1, [i]) for i, key in enumerate("abc", 1))
        store.path(gone).unlink()
        os.truncate(store.path(short), 4096)
        assert store.set_missing_aside() == 2
        assert catalog.all_blocks() == [fine]
        assert store.set_missing_aside() == 0


def test_blocks_without_a_use_go_at_the_start(tmp_path: Path) -> None:
    with open_catalog(tmp_path) as catalog:
        catalog.publish_document(new_document("a", ["one"]))
        store = BlockStore(Home(tmp_path), catalog, StoreSettings())
        row = store.publish(make_block("a" * 64), 1, [1])
        catalog.publish_document(new_document("a", ["another"]))  # the same document, cut anew
        store.recover()
        assert catalog.all_blocks() == []
        assert not store.path(row).exists()
