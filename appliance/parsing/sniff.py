"""Does the content of a file agree with its name? Decided on the first bytes, before any parser sees them."""

from collections.abc import Mapping
from pathlib import PurePath
from types import MappingProxyType

from appliance.errors import DocumentRejected

HEAD_BYTES = 4096

KINDS: Mapping[str, str] = MappingProxyType(
    {
        ".txt": "txt",
        ".md": "md",
        ".markdown": "md",
        ".html": "html",
        ".htm": "html",
        ".pdf": "pdf",
        ".docx": "docx",
    }
)
"""The kind of document that each known extension stands for."""

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_SIGNATURES = (
    (b"PK\x03\x04", "a zip archive"),
    (b"PK\x05\x06", "an empty zip archive"),
    (_OLE, "an old Office file"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"GIF8", "a GIF picture"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "a program"),
    (b"{\\rtf", "an RTF file"),
)

_STRAY_CONTROLS = 4  # so many are an accident, also in a short text


def kind_of(name: str) -> str | None:
    """Return the kind that the extension of a file name stands for, or None for an unknown one."""
    return KINDS.get(PurePath(name).suffix.lower())


def known_extensions() -> str:
    """The extensions for a message: ".txt .md …"."""
    return " ".join(KINDS)


def check_kind(file_name: str, head: bytes, name: str) -> str:
    """Return the kind of the file `file_name` that begins with `head` (its first `HEAD_BYTES`).

    `name` is what messages call it: clean, and shorter than a file name may be. Raises `DocumentRejected`
    if the extension is unknown or the content is something else.
    """
    kind = kind_of(file_name)
    if kind is None:
        raise DocumentRejected(f"{name} is of an unknown type: these are read: {known_extensions()}")
    if kind == "docx" and head.startswith(_OLE):
        raise DocumentRejected(f"{name} is encrypted or an old Word file: save it as .docx without a password")
    found = _signature(head)
    expected = {"pdf": "a PDF file", "docx": "a zip archive"}.get(kind)
    if expected is not None:
        if found != expected:
            what = found or "something else"
            raise DocumentRejected(f"{name} is not what its name says but {what}: give it its right extension")
    elif found is not None:
        raise DocumentRejected(f"{name} is not text but {found}: give it its right extension")
    elif _looks_binary(head):
        raise DocumentRejected(f"{name} is not text but binary data: only text can be read")
    return kind


def _signature(head: bytes) -> str | None:
    """Name what the first bytes say, None for text or an unknown format. A PDF may have up to 1 KiB of junk before."""
    for magic, what in _SIGNATURES:
        if head.startswith(magic):
            return what
    return "a PDF file" if b"%PDF-" in head[:1024] else None


def _looks_binary(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    controls = sum(byte < 32 and byte not in b"\t\n\v\f\r\x1b" for byte in head)
    return 0 in head or controls > max(_STRAY_CONTROLS, len(head) // 50)
