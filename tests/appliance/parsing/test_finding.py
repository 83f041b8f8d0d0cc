"""Which files of a folder count as documents."""

import os
from pathlib import Path

from appliance.demo import sample_folder
from appliance.parsing import DocumentParser, find_documents


def said(path: Path, line: str) -> str:
    """The reason of a line, which must name the path before it and the mend after it."""
    reason, colon, mend = line.removeprefix(str(path).replace("\0", "")).strip().partition(": ")
    assert colon
    assert mend
    assert reason != line
    return reason


def test_a_folder_is_searched_and_every_file_left_out_has_its_reason(tmp_path: Path) -> None:
    for name in ("b.TXT", "sub/a.md", ".hidden.txt", ".git/c.txt", "picture.png", "~$open.docx"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("text")
    (tmp_path / "link.txt").symlink_to(tmp_path / "b.TXT")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.txt")
    found = find_documents([tmp_path, tmp_path / "b.TXT"])
    assert [path.relative_to(tmp_path).as_posix() for path in found.accepted] == ["b.TXT", "sub/a.md"]
    reasons = {path.relative_to(tmp_path).as_posix(): said(path, line) for path, line in found.skipped}
    assert reasons == {
        ".git": "is hidden",
        ".hidden.txt": "is hidden",
        "link.txt": "is a symbolic link",
        "loop": "is a symbolic link",
        "picture.png": "is of an unknown type",
        "pipe.txt": "is not a regular file",
        "~$open.docx": "is the lock file of an open document",
    }
    assert not found.refused


def test_what_was_named_and_cannot_be_had_is_refused(tmp_path: Path) -> None:
    picture, missing = tmp_path / "picture.png", tmp_path / "missing.txt"
    picture.write_text("x")
    found = find_documents([picture, missing, Path("nul\0.txt")])
    assert not found.accepted
    assert not found.skipped
    assert {path.name: said(path, line) for path, line in found.refused} == {
        "picture.png": "is of an unknown type",
        "missing.txt": "does not exist",
        "nul\0.txt": "cannot be reached (embedded null byte)",
    }


def test_a_document_with_an_impossible_name_is_refused(tmp_path: Path) -> None:
    """It is one that the user expects to find again; a picture of such a name is no loss."""
    for name in (b"caf\xe9.txt", b"caf\xe9.png"):
        Path(tmp_path, os.fsdecode(name)).write_text("text")
    found = find_documents([tmp_path])
    line = f"{tmp_path}/caf\ufffd.txt has a name that is not valid UTF-8: rename it and ingest it again"
    assert [line for _, line in found.refused] == [line]
    assert [path.suffix for path, _ in found.skipped] == [".png"]


def test_a_hidden_file_may_be_named(tmp_path: Path) -> None:
    (tmp_path / ".notes.md").write_text("text")
    assert find_documents([tmp_path / ".notes.md"]).accepted == (tmp_path / ".notes.md",)


def test_every_sample_document_is_read(parser: DocumentParser) -> None:
    found = find_documents([sample_folder()])
    assert len(found.accepted) >= 12
    assert not found.skipped
    assert not found.refused
    documents = [parser.parse(path) for path in found.accepted]
    assert {document.kind for document in documents} == {"txt", "md", "html", "pdf", "docx"}
    assert all(len(document.text) > 2000 and document.flags == () for document in documents)
    assert sum(len(document.pages) > 1 for document in documents) >= 2
