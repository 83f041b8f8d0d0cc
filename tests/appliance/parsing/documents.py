"""Builds small documents for the tests: PDFs by hand (no library of ours writes them), Word files by python-docx."""

import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import docx

ENCRYPTED_PDF = Path(__file__).with_name("encrypted.pdf")
"""A PDF that opens with the password "open sesame"."""

Placed = tuple[float, float, str]  # left, baseline (points from the lower left corner), text


def pdf_bytes(pages: Sequence[Sequence[Placed]], title: str = "", size: int = 12) -> bytes:
    """A PDF with the given strings in Helvetica on pages of 600 × 800 points."""
    kids = " ".join(f"{4 + 2 * index} 0 R" for index in range(len(pages)))
    bodies = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for index, placed in enumerate(pages):
        shows = [f"BT /F1 {size} Tf {x} {y} Td ({_escape(text)}) Tj ET" for x, y, text in placed]
        stream = "\n".join(shows).encode("cp1252")
        page = f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {5 + 2 * index} 0 R"
        bodies.append(f"{page} /Resources << /Font << /F1 3 0 R >> >> >>".encode())
        bodies.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
    bodies.append(f"<< /Title ({_escape(title)}) >>".encode("cp1252"))
    return _assemble(bodies)


def lines(*texts: str, top: float = 600.0, left: float = 72.0, leading: float = 14.0) -> list[Placed]:
    """Put lines below each other; an empty string is an empty line."""
    return [(left, top - leading * row, text) for row, text in enumerate(texts) if text]


def docx_bytes(*paragraphs: str, title: str = "") -> bytes:
    document = docx.Document()
    document.core_properties.title = title
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    return saved(document)


def saved(document: object) -> bytes:
    stream = io.BytesIO()
    document.save(stream)  # type: ignore[attr-defined]
    return stream.getvalue()


def with_members(archive: bytes, members: Mapping[str, bytes]) -> bytes:
    """The same archive with members replaced or added."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(archive)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            if name not in members:
                new.writestr(name, old.read(name))
        for name, data in members.items():
            new.writestr(name, data)
    return out.getvalue()


def member(archive: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return opened.read(name)


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)")


def _assemble(bodies: Sequence[bytes]) -> bytes:
    out = bytearray(b"%PDF-1.7\n")
    offsets = []
    for number, body in enumerate(bodies, start=1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(bodies) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer\n<< /Size %d /Root 1 0 R /Info %d 0 R >>\n" % (len(bodies) + 1, len(bodies))
    out += b"startxref\n%d\n%%%%EOF\n" % table
    return bytes(out)
