"""A data folder is ours or empty: another folder is refused before anything in it is touched."""

from collections.abc import Callable
from pathlib import Path

import pytest

from storage.catalog import Catalog, set_catalog_aside
from storage.errors import HomeRefused
from storage.home import MARKER, Home
from storage.lock import HomeLock
from storage.scratch import scratch_folder
from tests.storage.catalog.builders import open_catalog


def _scratch(home: Home) -> None:
    with scratch_folder(home):
        pass


WAYS: dict[str, Callable[[Home], object]] = {
    "create": lambda home: home.create(),
    "lock": lambda home: HomeLock(home).acquire(),
    "catalog": Catalog.open,
    "aside": set_catalog_aside,
    "scratch": _scratch,
}


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A folder of someone's own, with names like ours in it."""
    folder = tmp_path / "theirs"
    for name in ("tmp", "blocks", "uploads/1", "cache", "quarantine"):
        (folder / name).mkdir(parents=True)
        (folder / name / "thesis.txt").write_text("mine")
    (folder / "catalog.db").write_bytes(b"SQLite format 3\0" + b"\0" * 200)
    folder.chmod(0o755)
    return folder


@pytest.mark.parametrize("way", WAYS)
def test_a_folder_with_files_is_refused_and_left_alone(theirs: Path, way: str) -> None:
    before = {path: path.stat() for path in [theirs, *theirs.rglob("*")]}
    with pytest.raises(HomeRefused, match="name an empty or a new folder with --home") as caught:
        WAYS[way](Home(theirs))
    assert "\n" not in str(caught.value)
    after = {path: path.stat() for path in [theirs, *theirs.rglob("*")]}
    assert {path: (found.st_mode, found.st_mtime_ns) for path, found in after.items()} == {
        path: (found.st_mode, found.st_mtime_ns) for path, found in before.items()
    }


@pytest.mark.parametrize("there", [[], ["lost+found"]])
def test_an_empty_folder_becomes_ours(tmp_path: Path, there: list[str]) -> None:
    for name in there:
        (tmp_path / name).mkdir()
    home = Home(tmp_path)
    home.create()
    assert home.marker_file.is_file()
    assert tmp_path.stat().st_mode & 0o777 == 0o700
    (tmp_path / "anything").write_text("x")
    home.create()


def test_a_kill_after_the_marker_is_made_good(tmp_path: Path) -> None:
    (tmp_path / MARKER).touch()
    (tmp_path / "note").touch()
    Home(tmp_path).create()
    assert Home(tmp_path).blocks.is_dir()


def test_a_home_of_before_the_marker_gets_one(tmp_path: Path) -> None:
    open_catalog(tmp_path).close()
    home = Home(tmp_path)
    home.marker_file.unlink()
    with Catalog.open(home) as catalog:
        assert [row.name for row in catalog.collections()] == ["papers"]
    assert home.marker_file.is_file()
