"""A full disk: a clear line, what is durable stays and answers, `rm` works, and ingest completes once there is room."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ApplianceError
from appliance.service import Answer, Appliance
from appliance.settings import Settings
from appliance.verify import open_and_verify
from storage.durable import SYSTEM
from tests.appliance.fixtures import QUESTION, Cli
from tests.appliance.stored import ready_blocks, snapshot

TMPFS_BYTES = 12 << 20


def ask(appliance: Appliance) -> Answer:
    return appliance.answer(QUESTION, strategy="reuse", top_k=20, max_new_tokens=8)


@contextmanager
def failing(name: str, at: int) -> Iterator[list[int]]:
    """The system call `name` says "no space" from its call number `at` on; counts the calls."""
    call: Callable[..., Any] = getattr(SYSTEM, name)
    calls = [0]

    def refused(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] > at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return call(*arguments)

    object.__setattr__(SYSTEM, name, refused)  # frozen, and shared as a default argument
    try:
        yield calls
    finally:
        object.__setattr__(SYSTEM, name, call)


def without_time(held: dict[str, Any]) -> dict[str, Any]:
    """Chunks and blocks as they must be in the end, however often it took."""
    return {
        "texts": {name: [chunk.text for chunk in chunks] for name, chunks in held["chunks"].items()},
        "blocks": held["blocks"],
        "files": held["files"],
        "drafts": held["drafts"],
        "faults": held["faults"],
    }


@pytest.fixture
def expected(settings: Settings, sample_files: Path) -> dict[str, Any]:
    """The same folder ingested where there was room."""
    other = replace(settings, home=settings.home.with_name("roomy"))
    with Appliance.open(other) as appliance:
        appliance.ingest([sample_files])
    return without_time(snapshot(other.home))


# Documents come first (3 files), then a block for each chunk.
@pytest.mark.parametrize("name", ["preallocate", "write", "fsync"])
@pytest.mark.parametrize("at", [0, 2, 3, 6])
def test_a_write_is_refused(
    settings: Settings, sample_files: Path, expected: dict[str, Any], reads: list[str], name: str, at: int
) -> None:
    with Appliance.open(settings) as appliance:
        with failing(name, at) as calls:
            report = appliance.ingest([sample_files])
        assert calls[0] > at
        assert report.failed
        assert report.error is not None
        assert "no room left" in report.error
        assert "free some space" in report.error
        assert len(report.documents) == 3  # each file has its entry
        ready = [entry for entry in report.documents if entry.state == "ready"]
        assert len(appliance.documents()) == len(ready)
        assert report.kv_bytes == sum(row.size_bytes for row in ready_blocks(settings.home))
        assert list(appliance.home.temporary.iterdir()) == []
        if ready:
            with failing(name, 0):
                answer = ask(appliance)
            assert answer.answer_ids == ask(appliance).answer_ids
        finished = {row.key for row in ready_blocks(settings.home)}
        reads.clear()
        assert not appliance.ingest([sample_files]).failed
        assert set(reads).isdisjoint(finished)
    assert without_time(snapshot(settings.home)) == expected
    assert open_and_verify(settings.home).problems == ()


def test_the_catalog_is_refused(settings: Settings, sample_files: Path, expected: dict[str, Any]) -> None:
    """SQLite itself says "full", in the middle of the run."""
    with Appliance.open(settings) as appliance:
        appliance.ingest([sample_files / "rules.md"])
        with appliance.catalog._connection.read() as sqlite:
            pages = sqlite.execute("PRAGMA page_count").fetchone()[0]
            sqlite.execute(f"PRAGMA max_page_count = {pages}")
        (sample_files / "long.txt").write_text("A sentence about nothing at all. " * 400)
        report = appliance.ingest([sample_files])
        assert report.error is not None
        assert "no room left" in report.error
        stored = {document.title for document in appliance.documents()}
        assert "House rules" in stored
        assert "long" not in stored
        assert ask(appliance).answer_ids == ask(appliance).answer_ids
    (sample_files / "long.txt").unlink()
    with Appliance.open(settings) as appliance:
        assert not appliance.ingest([sample_files]).failed
    assert without_time(snapshot(settings.home)) == expected


def test_the_command_line_says_it_once(cli: Cli, sample_files: Path, settings: Settings) -> None:
    with failing("write", 3):
        ran = cli("ingest", sample_files, "--json")
    assert ran.code == 1
    assert "no room left" in ran.json["error"]
    assert len(ran.error_lines) == 1
    assert "no room left" in ran.error_lines[0]
    assert cli("ask", QUESTION, "--json").json["sources"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 12 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={TMPFS_BYTES}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave_bytes: int) -> Path:
    """A file that leaves so much room and no more."""
    ballast = folder / "ballast"
    free = os.statvfs(folder).f_bavail * os.statvfs(folder).f_frsize
    with ballast.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, max(free - leave_bytes, 1))
    return ballast


def said_by_ingest(appliance: Appliance, files: Path) -> str:
    """The report's error, or that of an ingest that had no room even to begin."""
    try:
        return str(appliance.ingest([files]).error)
    except ApplianceError as error:
        return str(error)


@pytest.mark.parametrize("leave_bytes", [0, 60_000, 160_000])
def test_a_disk_that_is_really_full(
    settings: Settings, sample_files: Path, small_disk: Path, expected: dict[str, Any], leave_bytes: int
) -> None:
    chosen = replace(settings, home=small_disk / "home")
    other = sample_files.with_name("first.txt")
    other.write_text("The first document was here before the disk was full. It names the gate of the yard.")
    with Appliance.open(chosen) as appliance:
        appliance.ingest([other])
        before = appliance.answer("Where is the gate?", strategy="reuse", max_new_tokens=8).answer_ids
    with Appliance.open(chosen) as appliance:
        ballast = fill(small_disk, leave_bytes)
        assert "no room left" in said_by_ingest(appliance, sample_files)
        assert "first" in [document.title for document in appliance.documents()]
        assert appliance.answer(QUESTION, strategy="reuse", max_new_tokens=4).answer_ids
    fill(small_disk, leave_bytes)  # closing the catalog gave some room back
    with Appliance.open(chosen) as appliance:  # a new process on the full disk
        if len(appliance.documents()) == 1:
            again = appliance.answer("Where is the gate?", strategy="reuse", max_new_tokens=8)
            assert again.answer_ids == before
        appliance.remove(appliance.find_document("first.txt"))
        assert "first" not in [document.title for document in appliance.documents()]
        ballast.unlink()
        assert not appliance.ingest([sample_files]).failed
    assert without_time(snapshot(chosen.home)) == expected
    assert open_and_verify(chosen.home).problems == ()
