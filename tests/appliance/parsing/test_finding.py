"""Which files of a folder count as documents."""

import os
from pathlib import Path

from appliance.demo import sample_folder
from appliance.parsing import DocumentParser, find_documents


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
    reasons = {path.relative_to(tmp_path).as_posix(): reason.partition(":")[0] for path, reason in found.skipped}
    assert reasons == {
        ".git": "it is hidden",
        ".hidden.txt": "it is hidden",
        "link.txt": "it is a symbolic link",
        "loop": "it is a symbolic link",
        "picture.png": "its type is unknown",
        "pipe.txt": "it is not a regular file",
        "~$open.docx": "it is the lock file of an open document",
    }
    assert not found.refused


def test_what_was_named_and_cannot_be_had_is_refused(tmp_path: Path) -> None:
    picture, missing = tmp_path / "picture.png", tmp_path / "missing.txt"
    picture.write_text("x")
    found = find_documents([picture, missing, Path("nul\0.txt")])
    assert not found.accepted
    assert not found.skipped
    assert {path.name: reason.partition(":")[0] for path, reason in found.refused} == {
        "picture.png": "its type is unknown",
        "missing.txt": "it does not exist",
        "nul\0.txt": "it cannot be reached (embedded null byte)",
    }


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
