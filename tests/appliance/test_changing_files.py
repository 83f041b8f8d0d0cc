"""Files that change, vanish or cannot be looked at while a folder is read: nothing is stored under a wrong name."""

import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import NothingToIngest
from appliance.ingest import IngestReport
from appliance.parsing import DocumentParser, OpenDocument
from appliance.service import Appliance
from tests.appliance.fixtures import SAMPLES
from tests.appliance.stored import ready_blocks

PUMP = SAMPLES["pump.txt"]


def states(report: IngestReport) -> dict[str, str]:
    return {Path(entry.path).name: entry.state for entry in report.documents}


def errors(report: IngestReport) -> dict[str, str]:
    return {Path(entry.path).name: entry.error or "" for entry in report.documents if entry.state == "failed"}


def while_parsing(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Make `change` happen after the file was hashed and before it is parsed."""
    parse = DocumentParser.parse_open

    def changed_first(self: DocumentParser, document: OpenDocument) -> Any:
        change()
        return parse(self, document)

    monkeypatch.setattr(DocumentParser, "parse_open", changed_first)


def set_back(path: Path, text: str) -> None:
    """Other content of the same size and time, as a copying tool leaves it."""
    status = path.stat()
    with path.open("r+") as stream:
        stream.write(text)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_a_file_written_to_while_it_is_read(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pump = sample_files / "pump.txt"
    with monkeypatch.context() as changing:
        while_parsing(changing, lambda: set_back(pump, PUMP.replace("brass", "steel")))
        report = appliance.ingest([pump])
    assert errors(report) == {"pump.txt": "pump.txt changed while it was read: ingest it again"}
    assert appliance.documents() == []
    assert states(appliance.ingest([pump])) == {"pump.txt": "ready"}
    stored = appliance.catalog.documents()[0]
    assert stored.digest == hashlib.sha256(pump.read_bytes()).hexdigest()
    assert "steel" in "".join(chunk.text for chunk in appliance.catalog.chunks_of(stored.id))


def test_a_write_within_one_tick_of_the_clock(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then no time moves, and only the content tells."""
    pump = sample_files / "pump.txt"
    while_parsing(monkeypatch, lambda: pump.write_text(PUMP.replace("brass", "steel")))
    monkeypatch.setattr(OpenDocument, "check_unchanged", lambda _self: None)
    assert "changed while it was read" in errors(appliance.ingest([pump]))["pump.txt"]
    assert appliance.documents() == []


def test_another_file_that_takes_the_name_while_it_is_read(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As editors save. What was hashed is what is parsed and stored; the next run reads the new file."""
    pump, other = sample_files / "pump.txt", sample_files.parent / "other.txt"
    other.write_text("Nothing of a pump stands here any more, but of a crane that was painted.")
    with monkeypatch.context() as changing:
        while_parsing(changing, lambda: other.exists() and other.rename(pump))
        report = appliance.ingest([pump])
    texts = {
        document.digest: "".join(chunk.text for chunk in appliance.catalog.chunks_of(document.id))
        for document in appliance.catalog.documents()
    }
    first = hashlib.sha256(PUMP.encode()).hexdigest()
    assert errors(report) or ("brass" in texts[first] and "crane" not in texts[first])
    assert states(appliance.ingest([pump])) == {"pump.txt": "ready"}
    assert [document.chunks for document in appliance.documents()] == [1]


def test_a_folder_that_may_not_be_looked_into(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Costs itself; what was read from it stays, and the others are read."""
    locked = sample_files / "locked"
    locked.mkdir()
    (locked / "plan.txt").write_text("The plan of the hall is kept under lock and key.")
    appliance.ingest([sample_files])
    (sample_files / "pump.txt").unlink()
    (sample_files / "new.txt").write_text("A new file that has nothing to do with it.")
    with monkeypatch.context() as rights:
        for name in ("stat", "lstat", "scandir"):
            rights.setattr(os, name, refusing(getattr(os, name), locked))
        report = appliance.ingest([sample_files])
    assert states(report) == {
        "locked": "failed",
        "new.txt": "ready",
        "price.html": "unchanged",
        "pump.txt": "removed",
        "rules.md": "unchanged",
    }
    assert errors(report)["locked"] == f"{locked} cannot be looked into (Permission denied): change its permissions"
    assert "plan" in {document.title for document in appliance.documents()}


def refusing(call: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """The system call as it is without rights on a folder (tests may run as root, who has them all)."""

    def refused(path: Any = ".", *arguments: Any, **named: Any) -> Any:
        inside = isinstance(path, str | Path) and Path(path).is_relative_to(folder)
        if inside and (Path(path) != folder or call.__name__ == "scandir"):
            raise PermissionError(13, "Permission denied", str(path))
        return call(path, *arguments, **named)

    return refused


def test_an_error_of_the_system_costs_one_file(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.pread

    def failing(descriptor: int, size: int, offset: int) -> bytes:
        if size > 4096 and os.path.sameopenfile(descriptor, pump.fileno()):
            raise OSError(5, "Input/output error")
        return read(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", failing)
    with (sample_files / "pump.txt").open() as pump:
        report = appliance.ingest([sample_files])
    assert states(report) == {"price.html": "ready", "pump.txt": "failed", "rules.md": "ready"}
    assert "pump.txt cannot be read (Input/output error): " in errors(report)["pump.txt"]


def test_the_last_document_of_a_folder_goes_with_its_file(appliance: Appliance, sample_files: Path) -> None:
    (sample_files / "picture.png").write_bytes(b"not read")
    appliance.ingest([sample_files])
    for name in SAMPLES:
        (sample_files / name).unlink()
    report = appliance.ingest([sample_files])
    assert states(report) == {"picture.png": "skipped", **dict.fromkeys(SAMPLES, "removed")}
    assert not report.failed
    assert appliance.documents() == []
    assert ready_blocks(appliance.settings.home) == []
    with pytest.raises(NothingToIngest, match="no document in it"):
        appliance.ingest([sample_files])


def test_an_emptied_folder_removes_nothing(appliance: Appliance, sample_files: Path, tmp_path: Path) -> None:
    appliance.ingest([sample_files])
    shutil.rmtree(sample_files)
    sample_files.mkdir()  # as a disk looks that is not mounted
    line = f"{sample_files} is empty now and 3 documents read from it stay: "
    for ask in (appliance.ingest, appliance.estimate):
        with pytest.raises(NothingToIngest) as refused:
            ask([sample_files])
        assert str(refused.value).startswith(line)
        assert "appliance rm" in str(refused.value)
    other = tmp_path / "other.txt"
    other.write_text("Another file that was named along with the empty folder.")
    report = appliance.ingest([sample_files, other])
    assert states(report) == {"files": "failed", "other.txt": "ready"}
    assert errors(report)["files"].startswith(line)
    assert len(appliance.documents()) == 4


def test_flags_are_told(appliance: Appliance, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text("Pay the bill\u200b\u200b within ten days of its date, please.")
    for state in ("ready", "unchanged"):
        entry = appliance.ingest([page]).documents[0]
        assert (entry.state, entry.error) == (state, None)
        assert entry.notes == ("text that a reader would not see was left out",)
        assert entry.as_json()["notes"] == list(entry.notes)


def test_a_long_name(appliance: Appliance, tmp_path: Path) -> None:
    long = tmp_path / ("a long name " * 20 + ".txt")
    long.write_text("The name of this file is long, and the system allows it.")
    assert states(appliance.ingest([long])) == {long.name: "ready"}
    long.write_text("")
    (line,) = errors(appliance.ingest([long])).values()
    assert "….txt is empty: " in line
    assert len(line) < 280
