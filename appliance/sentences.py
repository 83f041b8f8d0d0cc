"""Sentences, lines, paragraphs and headings of a text, as spans with the quality of the boundary before each."""

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol


class Boundary(enum.IntEnum):
    """How good a place for a cut is, the best last."""

    CHARACTER = 0
    WORD = 1
    SENTENCE = 2
    LINE = 3
    PARAGRAPH = 4
    SECTION = 5


@dataclass(frozen=True)
class Unit:
    """A span that chunks do not cut, without white space at its ends; `boundary` is what stands before it."""

    start: int
    end: int
    boundary: Boundary
    is_heading: bool


class Counter(Protocol):
    """Counts tokens of spans; see `appliance.chunking.TokenCounter`."""

    def count(self, start: int, end: int) -> int: ...
    def fitting_end(self, start: int, end: int, limit_tokens: int) -> int: ...


_LONGEST_HEADING = 100
_PARAGRAPH_BREAK = re.compile(r"\n[ \t]*\n\s*")
_LIST_MARK = r"(?:[-*+•‣◦▪–—]|\(?\d{1,3}[.)]|\(?[a-z]\))[ \t]"
# Where a line begins or ends on purpose, also in text whose lines are wrapped.
_STARTS_LINE = re.compile(rf"[ \t]*(?:{_LIST_MARK}|#{{1,6}}[ \t]|\||>|```)")
_ENDS_LINE = re.compile(r"[.!?:;。！？]['\")\]*_»”’]*[ \t]*$|\|[ \t]*$|^[ \t]*#{1,6}[ \t]|^[ \t]*[-=*_`]{3,}[ \t]*$")
_ROW = re.compile(r"\S \| \S|\t")
_MARKDOWN_HEADING = re.compile(r"[ \t]*#{1,6}[ \t]+\S")
_HEADING_END = re.compile(r"[^.!?;,。！？]['\")\]*_]*$")
# Possessive and only at the first stop of a run: a megabyte of dots must not take a square of it.
_SENTENCE_END = re.compile(r"(?:(?<![.!?…])[.!?…]++['\")\]»”’]*+(?=\s)|[。！？]++[」』）”’]*+)\s*+")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'])(?:[A-Za-z]|\d{1,2}|Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|No|Nos|Nr|Art|Sec|Fig|Figs|Eq|Ch|Vol|pp|vs|etc|cf|al|ca|approx|"
    r"e\.g|i\.e|z\.B|d\.h|bzw|usw|Inc|Ltd|Co|Corp|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sep|Sept|Oct|Nov|Dec|U\.S|a\.m|p\.m)\.$"
)
_WORD = re.compile(r"\S+\s*")
_LINE = re.compile(r"[^\n]+\n*")


def split_into_units(
    text: str, start: int, end: int, lines_are_real: bool, counter: Counter, limit_tokens: int
) -> Iterator[Unit]:
    """Yield the units of `text[start:end]` in order; together they hold all that is not blank.

    `lines_are_real`: every line feed means something, none comes from wrapping.
    """
    for part in _sentences(text, start, end, lines_are_real):
        if counter.count(part.start, part.end) <= limit_tokens:
            yield part
        else:
            yield from _pieces(text, part, counter, limit_tokens)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return start, end


def _spans(pattern: re.Pattern[str], text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The spans between matches of a separator, trimmed, none blank."""
    position = start
    for match in pattern.finditer(text, start, end):
        first, last = _trimmed(text, position, match.start())
        if first < last:
            yield first, last
        position = match.end()
    first, last = _trimmed(text, position, end)
    if first < last:
        yield first, last


def _sentences(text: str, start: int, end: int, lines_are_real: bool) -> Iterator[Unit]:
    after_heading = False
    for paragraph_start, paragraph_end in _spans(_PARAGRAPH_BREAK, text, start, end):
        boundary = Boundary.PARAGRAPH
        lines = list(_lines(text, paragraph_start, paragraph_end, lines_are_real))
        for line_start, line_end in lines:
            is_heading = _is_heading(text, line_start, line_end, alone=len(lines) == 1)
            if is_heading:
                # Two headings in a row belong together: the cut goes before the first.
                boundary = Boundary.PARAGRAPH if after_heading else Boundary.SECTION
            for first, last in _sentences_of_line(text, line_start, line_end, whole=is_heading):
                yield Unit(first, last, boundary, is_heading)
                boundary = Boundary.SENTENCE
            boundary = Boundary.LINE
            after_heading = is_heading


def _lines(text: str, start: int, end: int, lines_are_real: bool) -> Iterator[tuple[int, int]]:
    """The lines of a paragraph that begin or end on purpose; wrapped ones are joined."""
    position = start
    line_start = start
    while (feed := text.find("\n", line_start, end)) >= 0:
        above, below = text[line_start:feed], text[feed + 1 : _line_end(text, feed + 1, end)]
        is_break = lines_are_real or _STARTS_LINE.match(below) or _ENDS_LINE.search(above)
        if is_break or (_ROW.search(above) and _ROW.search(below)):
            first, last = _trimmed(text, position, feed)
            if first < last:
                yield first, last
            position = feed + 1
        line_start = feed + 1
    first, last = _trimmed(text, position, end)
    if first < last:
        yield first, last


def _line_end(text: str, start: int, end: int) -> int:
    feed = text.find("\n", start, end)
    return end if feed < 0 else feed


def _is_heading(text: str, start: int, end: int, *, alone: bool) -> bool:
    """A Markdown heading, or a short line alone between blank lines that does not end like a sentence."""
    line = text[start:end]
    if "\n" in line or len(line) > _LONGEST_HEADING:
        return False
    if _MARKDOWN_HEADING.match(line):
        return True
    is_item = re.match(_LIST_MARK, line) is not None and not re.match(r"\d+[.)]\s+[A-Z]", line)
    has_letter = any(map(str.isalpha, line))
    return alone and has_letter and not is_item and _ROW.search(line) is None and _HEADING_END.search(line) is not None


def _sentences_of_line(text: str, start: int, end: int, *, whole: bool) -> Iterator[tuple[int, int]]:
    position = start
    for match in _SENTENCE_END.finditer(text, start, end):
        if whole or match.end() >= end or not _is_sentence_end(text, position, match, end):
            continue
        first, last = _trimmed(text, position, match.end())
        yield first, last
        position = match.end()
    first, last = _trimmed(text, position, end)
    if first < last:
        yield first, last


def _is_sentence_end(text: str, start: int, match: re.Match[str], end: int) -> bool:
    """Is the stop at `match` the end of a sentence that began at `start`, and not of "Dr.", "e.g." or "3. May"?"""
    stop = match.group().rstrip()
    if stop != ".":
        return not text[match.end()].islower()
    if text[match.end()].islower():
        return False
    before = text[max(start, match.start() - 12) : match.start() + 1]
    return _ABBREVIATION.search(before) is None


def _pieces(text: str, unit: Unit, counter: Counter, limit_tokens: int) -> Iterator[Unit]:
    """Cut a sentence that is too long: between its lines, else between words, else between characters."""
    boundary, is_heading = unit.boundary, False
    for line in _LINE.finditer(text, unit.start, unit.end):
        line_start, line_end = _trimmed(text, line.start(), line.end())
        if line_start == line_end:
            continue
        if counter.count(line_start, line_end) <= limit_tokens:
            yield Unit(line_start, line_end, boundary, is_heading)
            boundary = Boundary.LINE
            continue
        for word in _WORD.finditer(text, line_start, line_end):
            word_start, word_end = _trimmed(text, word.start(), word.end())
            while word_start < word_end:
                fits = counter.count(word_start, word_end) <= limit_tokens
                fitting = word_end if fits else counter.fitting_end(word_start, word_end, limit_tokens)
                yield Unit(word_start, fitting, boundary, is_heading)
                word_start, boundary = fitting, Boundary.CHARACTER
            boundary = Boundary.WORD
        boundary = Boundary.LINE
