"""Ingesting: what goes in, what costs nothing, what is replaced, and that a bad file costs itself alone."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ApplianceError, NothingToIngest
from appliance.ingest import IngestProgress, IngestReport
from appliance.parsing import DocumentParser, ParserLimits
from appliance.service import Appliance
from models.embedding import EmbeddingModel
from models.errors import PromptTooLong
from storage.errors import BlockRefused
from tests.appliance.fixtures import QUESTION
from tests.appliance.parsing.documents import ENCRYPTED_PDF, docx_bytes
from tests.appliance.stored import ready_blocks, snapshot


def states(report: IngestReport) -> dict[str, str]:
    return {Path(entry.path).name: entry.state for entry in report.documents}


def errors(report: IngestReport) -> dict[str, str]:
    return {Path(entry.path).name: entry.error or "" for entry in report.documents if entry.state == "failed"}


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, reads: list[str]) -> dict[str, int]:
    """How often a file was parsed and texts were embedded from here on; `reads` counts the language model."""
    counts = {"parse": 0, "embed": 0}
    for owner, name, kind in ((DocumentParser, "parse_open", "parse"), (EmbeddingModel, "embed_windows", "embed")):
        call = getattr(owner, name)

        def counted(*arguments: Any, _call: Any = call, _kind: str = kind) -> Any:
            counts[_kind] += 1
            return _call(*arguments)

        monkeypatch.setattr(owner, name, counted)
    return counts


def test_a_folder_goes_in(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    told: list[IngestProgress] = []
    report = appliance.ingest([sample_files], progress=told.append)
    assert states(report) == {"price.html": "ready", "pump.txt": "ready", "rules.md": "ready"}
    assert not report.failed
    assert report.chunks == sum(entry.chunks for entry in report.documents) == len(reads) == len(set(reads)) >= 6
    blocks = ready_blocks(appliance.settings.home)
    assert report.kv_bytes == sum(row.size_bytes for row in blocks)
    assert report.kv_tokens == sum(row.tokens for row in blocks)
    assert sorted(row.key for row in blocks) == sorted(reads)
    assert {step.stage for step in told} == {"parse", "kv"}
    assert told[-1].chunks_done == told[-1].chunks_total == report.chunks


def test_unchanged_files_cost_nothing(
    appliance: Appliance, sample_files: Path, work: dict[str, int], reads: list[str]
) -> None:
    appliance.ingest([sample_files])
    spent, read = dict(work), len(reads)
    before = snapshot(appliance.settings.home)
    for path in (sample_files, sample_files / "pump.txt"):
        again = appliance.ingest([path])
        assert set(states(again).values()) == {"unchanged"}
        assert (again.chunks, again.kv_bytes) == (0, 0)
    touched = sample_files / "pump.txt"
    os.utime(touched, ns=(1, 1))  # another time, the same content
    assert states(appliance.ingest([sample_files]))["pump.txt"] == "unchanged"
    assert (work, len(reads)) == (spent, read)
    after = snapshot(appliance.settings.home)
    assert {name: after[name] for name in after if name != "sources"} == {
        name: before[name] for name in before if name != "sources"
    }


def test_a_changed_file_replaces_its_chunks(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    appliance.ingest([sample_files])
    old = {row.key for row in ready_blocks(appliance.settings.home)}
    read = len(reads)
    pump = sample_files / "pump.txt"
    pump.write_text(pump.read_text().replace("brass", "steel"))
    report = appliance.ingest([sample_files])
    assert states(report) == {"price.html": "unchanged", "pump.txt": "ready", "rules.md": "unchanged"}
    assert [document.title for document in appliance.documents()].count("pump") == 1
    held = snapshot(appliance.settings.home)
    assert not any("brass and" in chunk.text for chunks in held["chunks"].values() for chunk in chunks)
    new = {row.key for row in held["blocks"]}
    assert len(reads) - read == report.chunks
    assert len(new - old) > 0
    assert len(old - new) > 0
    assert held["files"].keys() == {f"{name}.json" for name in held["chunks"]} | {row.file for row in held["blocks"]}


def test_a_vanished_file_is_removed(
    appliance: Appliance, sample_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    appliance.ingest([sample_files])
    kept = tmp_path / "elsewhere.txt"
    kept.write_text("This file lies outside of the folder and stays what it is.")
    appliance.ingest([kept])
    kept.unlink()
    (sample_files / "pump.txt").unlink()
    monkeypatch.chdir(sample_files)
    report = appliance.ingest([Path("../files")])  # as a person types it
    assert states(report)["pump.txt"] == "removed"
    assert {document.title for document in appliance.documents()} == {"House rules", "Prices", "elsewhere"}
    sources = appliance.answer(QUESTION, top_k=20, max_new_tokens=1).sources
    assert "pump" not in {source.document for source in sources}


def test_the_same_content_is_one_document(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    copy = sample_files / "copy.txt"
    shutil.copy(sample_files / "pump.txt", copy)
    report = appliance.ingest([sample_files])
    assert states(report)["copy.txt"] == "ready"
    assert states(report)["pump.txt"] == "unchanged"
    assert len(appliance.documents()) == 3
    assert len(reads) == report.chunks
    copy.unlink()
    assert states(appliance.ingest([sample_files]))["copy.txt"] == "removed"
    assert len(appliance.documents()) == 3  # the other path still holds it
    assert len(reads) == report.chunks


def test_collections_share_nothing(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    first = appliance.ingest([sample_files], "first")
    second = appliance.ingest([sample_files], "second")
    assert first.chunks == second.chunks
    assert len(set(reads)) == len(reads) == 2 * first.chunks
    assert appliance.collections() == ["first", "second"]
    assert len(appliance.documents("first")) == 3


def bad_files(folder: Path) -> dict[str, str]:
    """Files that cannot go in, and a word of the reason for each."""
    (folder / "empty.txt").write_text("")
    (folder / "blank.md").write_text(" \n\n ")
    (folder / "binary.txt").write_bytes(bytes(range(256)) * 20)
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\nnothing of a document follows\n")
    (folder / "broken.docx").write_bytes(b"PK\x03\x04 but no archive")
    (folder / "wrong.pdf").write_text("<html><body>a page that someone renamed</body></html>")
    (folder / "locked.pdf").write_bytes(ENCRYPTED_PDF.read_bytes())
    (folder / "nothing.docx").write_bytes(docx_bytes())
    return {
        "empty.txt": "is empty",
        "blank.md": "holds no text",
        "binary.txt": "binary.txt",
        "broken.pdf": "broken.pdf",
        "broken.docx": "broken.docx",
        "wrong.pdf": "wrong.pdf",
        "locked.pdf": "is encrypted",
        "nothing.docx": "holds no text",
    }


def test_bad_files_cost_themselves_alone(appliance: Appliance, sample_files: Path, tmp_path: Path) -> None:
    expected = bad_files(sample_files)
    (sample_files / "sheet.xlsx").write_bytes(b"not read")
    report = appliance.ingest([sample_files, tmp_path / "missing.txt"])
    found = errors(report)
    assert found.keys() == {*expected, "missing.txt"}
    for name, words in expected.items():
        assert words in found[name]
        assert "\n" not in found[name]
        assert ": " in found[name]  # the mend
    assert "does not exist" in found["missing.txt"]
    assert states(report)["sheet.xlsx"] == "skipped"
    assert {document.title for document in appliance.documents()} == {"pump", "House rules", "Prices"}
    assert report.failed
    assert errors(appliance.ingest([sample_files, tmp_path / "missing.txt"])).keys() == found.keys()


def test_a_file_above_the_limit(appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (sample_files / "large.txt").write_text("A long story. " * 200)
    monkeypatch.setattr("appliance.ingest.documents.ParserLimits", lambda: ParserLimits(file_bytes=2000))
    report = appliance.ingest([sample_files])
    assert "large.txt" in errors(report)["large.txt"]
    assert "split it" in errors(report)["large.txt"]
    assert len(appliance.documents()) == 3


def test_a_file_that_turns_bad_keeps_what_was_stored(appliance: Appliance, sample_files: Path) -> None:
    appliance.ingest([sample_files])
    expected = appliance.answer(QUESTION, max_new_tokens=8).answer_ids
    (sample_files / "pump.txt").write_bytes(b"")
    assert errors(appliance.ingest([sample_files])).keys() == {"pump.txt"}
    assert appliance.answer(QUESTION, max_new_tokens=8).answer_ids == expected


@pytest.mark.parametrize("name", ["folder", "nothing"])
def test_nothing_to_read(appliance: Appliance, tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    if name == "folder":
        with pytest.raises(NothingToIngest, match="no document in it"):
            appliance.ingest([tmp_path / name])
    else:
        assert "does not exist" in errors(appliance.ingest([tmp_path / name]))["nothing"]
    assert appliance.documents() == []


def test_a_chunk_the_model_cannot_read_costs_itself(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = appliance.engine.reader
    block, refused = reader.block, list[object]()

    def once_refusing(*arguments: Any, **named: Any) -> Any:
        if not refused:
            refused.append(arguments)
            raise BlockRefused("its keys are not finite: use another model")
        return block(*arguments, **named)

    monkeypatch.setattr(type(reader), "block", lambda _self, *arguments: once_refusing(*arguments))
    report = appliance.ingest([sample_files])
    assert report.error is not None
    assert "not finite" in report.error
    assert len(ready_blocks(appliance.settings.home)) == report.chunks - 1
    assert not appliance.ingest([sample_files]).failed
    assert len(ready_blocks(appliance.settings.home)) == report.chunks


def test_chunks_that_exceed_the_window(
    appliance: Appliance, sample_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line: the first of them with a mend that fits ingesting, and how many more."""
    reader = appliance.engine.reader

    def too_long(*_arguments: object) -> None:
        raise PromptTooLong("5000 tokens exceed the window: ask with fewer chunks")

    monkeypatch.setattr(type(reader), "block", too_long)
    report = appliance.ingest([sample_files])
    assert report.error is not None
    assert report.error.startswith("Prices, chunk 1: its ")
    assert "window of 2048: name a model with a larger window" in report.error
    assert "ask with" not in report.error
    assert report.error.endswith(f" (and {report.chunks - 1} more like it)")


@pytest.mark.parametrize(
    ("name", "words"), [("", "is empty"), (" ", "is empty"), ("x" * 201, "201 characters"), ("a\x1b[2J", "control")]
)
def test_names_of_collections(appliance: Appliance, sample_files: Path, name: str, words: str) -> None:
    for call in (appliance.ingest, appliance.estimate):
        with pytest.raises(ApplianceError, match=words) as refused:
            call([sample_files], name)
        assert refused.value.args[0].isprintable()
        assert len(refused.value.args[0]) < 150
    assert appliance.collections() == []


def test_estimate_stores_nothing(appliance: Appliance, sample_files: Path, reads: list[str]) -> None:
    bad_files(sample_files)
    guess = appliance.estimate([sample_files])
    assert guess.failed
    assert appliance.documents() == []
    assert ready_blocks(appliance.settings.home) == []
    report = appliance.ingest([sample_files])
    assert (guess.chunks, guess.kv_tokens) == (report.chunks, report.kv_tokens)
    assert report.kv_bytes * 0.5 < guess.kv_bytes <= report.kv_bytes
    assert guess.hours == pytest.approx(guess.kv_tokens / guess.tokens_per_s / 3600)
    assert appliance.estimate([sample_files]).kv_tokens == 0
    with pytest.raises(NothingToIngest):
        appliance.estimate([appliance.home.uploads])
