"""Hostile files: each is refused in one line, quickly, and the next file still goes in."""

import io
import os
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from appliance.errors import DocumentRejected
from appliance.parsing import DocumentParser, ParserLimits
from tests.appliance.parsing.documents import docx_bytes, lines, member, pdf_bytes, with_members

_BOMB = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]>'
_EXTERNAL = b'<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
_SMALL = ParserLimits(file_bytes=100_000, text_bytes=20_000, pages=3, archive_entries=50, archive_bytes=30_000_000)


@pytest.fixture(scope="module")
def small() -> Iterator[DocumentParser]:
    """A parser with limits small enough to be reached by quick tests."""
    with DocumentParser(_SMALL) as parser:
        yield parser


def rejection(parser: DocumentParser, path: Path) -> str:
    with pytest.raises(DocumentRejected) as caught:
        parser.parse(path)
    message = str(caught.value)
    assert "\n" not in message
    assert ": " in message  # the thing, then the mend
    return message


def _with_prolog(prolog: bytes) -> bytes:
    base = docx_bytes("Text.")
    xml = member(base, "word/document.xml")
    return with_members(base, {"word/document.xml": prolog + xml[xml.index(b"<w:document") :]})


def _many_entries() -> bytes:
    return with_members(docx_bytes("Text."), {f"word/{number}.xml": b"" for number in range(100)})


def _lying_directory() -> bytes:
    """An end record that claims a million entries."""
    data = bytearray(docx_bytes("Text."))
    at = data.rfind(b"PK\x05\x06")
    struct.pack_into("<HI", data, at + 10, 0xFFFF, 0xFFFFFFFF)
    return bytes(data)


def _encrypted_member() -> bytes:
    data = bytearray(docx_bytes("Text."))
    directory = data.index(b"PK\x01\x02")
    data[directory + 8] |= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("bomb.docx", lambda: with_members(docx_bytes("x"), {"word/media.bin": bytes(20_000_000)}), "archive bomb"),
        ("entities.docx", lambda: _with_prolog(_BOMB), "declares XML entities"),
        ("external.docx", lambda: _with_prolog(_EXTERNAL), "declares XML entities"),
        ("utf16.docx", lambda: _with_prolog(b"") and _utf16_entities(), "declares XML entities"),
        ("parts.docx", _many_entries, "more than 50 parts"),
        ("lying.docx", _lying_directory, "more than 50 parts"),
        ("locked.docx", _encrypted_member, "is encrypted"),
        ("old.docx", lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(100), "encrypted or an old Word file"),
        ("fake.docx", lambda: b"hello", "not what its name says"),
        ("fake.pdf", lambda: b"hello", "not what its name says but something else"),
        ("paper.txt", lambda: pdf_bytes([lines("x")]), "not text but a PDF file"),
        ("picture.md", lambda: b"\x89PNG\r\n\x1a\n", "not text but a PNG picture"),
        ("program.html", lambda: b"\x7fELF\x02\x01", "not text but a program"),
        ("binary.txt", lambda: bytes(range(256)), "not text but binary"),
        ("sheet.xlsx", lambda: b"PK\x03\x04", "unknown type"),
        ("empty.txt", lambda: b"", "is empty"),
        ("blank.txt", lambda: b" \n\t\n", "holds no text"),
        ("half.txt", lambda: "text".encode("utf-16")[:-1], "damaged UTF-16"),
        ("large.txt", lambda: b"x" * 100_001, "the limit is 0.1 MB"),
        ("long.txt", lambda: b"x" * 20_001, "more than 0.02 MB of text"),
        ("long.html", lambda: b"x" * 20_001, "more than 0.02 MB of text"),
        ("pages.pdf", lambda: pdf_bytes([lines("x")] * 4), "4 pages, the limit is 3"),
    ],
)
def test_a_hostile_file_is_refused_with_its_reason(
    small: DocumentParser, tmp_path: Path, name: str, data: Callable[[], bytes], reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(data())
    message = rejection(small, path)
    assert message.startswith(f"{name} ")
    assert reason in message
    good = tmp_path / "good.txt"
    good.write_text("Still here.")
    assert small.parse(good).text == "Still here."


def _utf16_entities() -> bytes:
    xml = '<?xml version="1.0" encoding="UTF-16"?>' + _BOMB.decode().partition("?>")[2] + "<l>&b;</l>"
    return with_members(docx_bytes("Text."), {"word/document.xml": xml.encode("utf-16")})


def test_an_archive_inside_a_document_stays_closed(small: DocumentParser, tmp_path: Path) -> None:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb.xml", bytes(3_000_000))
    path = tmp_path / "nested.docx"
    path.write_bytes(with_members(docx_bytes("Text."), {"word/embeddings/inner.zip": inner.getvalue()}))
    assert small.parse(path).text == "Text."


def test_names_inside_an_archive_lead_nowhere(small: DocumentParser, tmp_path: Path) -> None:
    path = tmp_path / "folder" / "evil.docx"
    path.parent.mkdir()
    path.write_bytes(with_members(docx_bytes("Text."), {"../../evil.xml": b"<x/>", "/evil.xml": b"<x/>"}))
    assert small.parse(path).text == "Text."
    assert [found.name for found in tmp_path.rglob("*evil*")] == ["evil.docx"]


@pytest.mark.parametrize(
    "name", ["..\\..\\x.txt", "CON.txt", "a\u202etxt.exe.txt", "x\ny\x1b[2J.txt", "ä" * 120 + ".txt"]
)
def test_odd_names_give_clean_titles(small: DocumentParser, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("Text.")
    title = small.parse(path).title
    assert title.isprintable()
    assert len(title) <= 200
    path.write_text("")
    assert rejection(small, path).isprintable()


def test_what_is_no_plain_file_is_refused(small: DocumentParser, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text("Text.")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real.txt")
    (tmp_path / "folder.txt").mkdir()
    os.mkfifo(tmp_path / "pipe.txt")
    assert "is a symbolic link" in rejection(small, tmp_path / "link.txt")
    assert "not a regular file" in rejection(small, tmp_path / "folder.txt")
    assert "not a regular file" in rejection(small, tmp_path / "pipe.txt")
    assert "does not exist" in rejection(small, tmp_path / "missing.txt")
    assert "too long a name" in rejection(small, tmp_path / ("x" * 4096 + ".txt"))
    assert "not a possible file name" in rejection(small, tmp_path / "nul\0.txt")


def test_an_unreadable_file_is_refused(small: DocumentParser, tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("Text.")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read every file")
    assert "may not be read by you" in rejection(small, path)
