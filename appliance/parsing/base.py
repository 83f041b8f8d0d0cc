"""The contract of a document parser.

One module per format offers a function of the type `Parse`. It runs in the parser process (`worker.py`), reads from an
open file and never from a path, and raises `DocumentRejected` with one line that names the file and the mend.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from appliance.parsing.limits import ParserLimits


@dataclass(frozen=True)
class PageSpan:
    """One page of a paged document: `text[start:end]` is its text; `number` counts from 1."""

    number: int
    start: int
    end: int


@dataclass(frozen=True)
class ParsedDocument:
    """What a parser makes of a file.

    `text` is NFC, its lines end in a line feed, and it holds no control, zero-width or bidi characters. `pages` are in
    order, do not overlap and leave out only the blank lines between pages; they are empty for kinds without pages.
    `flags` are words for the user: `hidden_text` (something a reader would not see was removed),
    `pages_without_text` (some pages hold only pictures).
    """

    title: str
    kind: str
    text: str
    pages: tuple[PageSpan, ...] = ()
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class SourceFile:
    """An open file on its way through a parser; `name` is only for titles and messages, it is never opened."""

    name: str
    stream: BinaryIO
    size_bytes: int


Parse = Callable[[SourceFile, ParserLimits], ParsedDocument]
"""Reads one file of one format. Raises `DocumentRejected`."""
