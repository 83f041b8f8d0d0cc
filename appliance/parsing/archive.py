"""Checks on a zip archive before any library opens it: entries, unpacked bytes, ratio, and no document types in XML.

Sizes are counted while unpacking; what the archive says about itself is never believed. Nothing is written to disk, so
names inside the archive cannot lead anywhere, and archives inside the archive stay closed.
"""

import struct
import zipfile
import zlib
from typing import BinaryIO
from xml.sax import SAXParseException  # the exception only: parsing is done by defusedxml
from xml.sax.handler import ContentHandler

from defusedxml.common import DefusedXmlException
from defusedxml.sax import make_parser

from appliance.errors import DocumentRejected
from appliance.parsing.base import SourceFile
from appliance.parsing.limits import ParserLimits, megabytes

_STEP_BYTES = 1 << 16
_END_RECORD = b"PK\x05\x06"
_END_RECORD_BYTES = 22
_LONGEST_COMMENT_BYTES = 0xFFFF
_ENTRY_RECORD_BYTES = 1024  # more than any entry of an honest document needs in the central directory
_RATIO_COUNTS_FROM_BYTES = 5_000_000  # a few pages of repeated markup may well shrink more than a hundredfold


def check_archive(source: SourceFile, limits: ParserLimits) -> None:
    """Refuse a zip archive that could harm whoever unpacks it. Leaves the stream at its beginning."""
    _check_directory(source, limits)
    try:
        with zipfile.ZipFile(source.stream) as archive:
            _check_members(archive, source, limits)
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error, NotImplementedError, UnicodeDecodeError):
        raise DocumentRejected(f"{source.name} is damaged: save it again and ingest it again") from None
    source.stream.seek(0)


def _check_directory(source: SourceFile, limits: ParserLimits) -> None:
    """Read the end record ourselves: `zipfile` would build an object for each of a million entries first."""
    tail_bytes = min(source.size_bytes, _END_RECORD_BYTES + _LONGEST_COMMENT_BYTES)
    source.stream.seek(source.size_bytes - tail_bytes)
    tail = source.stream.read(tail_bytes)
    at = tail.rfind(_END_RECORD)
    if at < 0 or at + _END_RECORD_BYTES > len(tail):
        raise DocumentRejected(f"{source.name} is cut off: copy it again and ingest it again")
    entries, directory_bytes = struct.unpack_from("<HI", tail, at + 10)
    # 0xFFFF and 0xFFFFFFFF refer to a zip64 record; they are above every limit we allow.
    if entries > limits.archive_entries or directory_bytes > limits.archive_entries * _ENTRY_RECORD_BYTES:
        raise _too_many_entries(source, limits)


def _check_members(archive: zipfile.ZipFile, source: SourceFile, limits: ParserLimits) -> None:
    members = archive.infolist()
    if len(members) > limits.archive_entries:
        raise _too_many_entries(source, limits)
    ratio_bytes = max(_RATIO_COUNTS_FROM_BYTES, limits.archive_ratio * source.size_bytes)
    unpacked_bytes = 0
    for member in members:
        if member.flag_bits & 1:
            raise DocumentRejected(f"{source.name} is encrypted: remove the password and ingest it again")
        with archive.open(member) as stream:
            xml = _PrologCheck(source.name) if member.filename.lower().endswith((".xml", ".rels")) else None
            while step := stream.read(_STEP_BYTES):
                unpacked_bytes += len(step)
                if unpacked_bytes > min(limits.archive_bytes, ratio_bytes):
                    size = megabytes(min(limits.archive_bytes, ratio_bytes))
                    raise DocumentRejected(f"{source.name} unpacks to more than {size}: it looks like an archive bomb")
                if xml is not None:
                    xml.feed(step)


def _too_many_entries(source: SourceFile, limits: ParserLimits) -> DocumentRejected:
    message = f"{source.name} holds more than {limits.archive_entries} parts: save it again as a simple document"
    return DocumentRejected(message)


class _PrologCheck(ContentHandler):
    """Reads XML up to its root element, the only place where a document type with entities can stand."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._done = False
        self._parser = make_parser()
        self._parser.forbid_dtd = True
        self._parser.setContentHandler(self)

    def startElement(self, name: str, attrs: object) -> None:  # noqa: N802
        self._done = True

    def feed(self, step: bytes) -> None:
        if self._done:
            return
        try:
            self._parser.feed(step)
        except DefusedXmlException:
            message = f"{self._name} declares XML entities, which no honest document needs: save it again from Word"
            raise DocumentRejected(message) from None
        except SAXParseException:
            # Malformed after the root element is the next reader's business, before it nothing can be read.
            if not self._done:
                raise DocumentRejected(f"{self._name} is damaged: save it again and ingest it again") from None


def has_member(stream: BinaryIO, name: str) -> bool:
    """Say whether a checked archive holds a part of this name. Leaves the stream at its beginning."""
    with zipfile.ZipFile(stream) as archive:
        found = name in archive.namelist()
    stream.seek(0)
    return found
