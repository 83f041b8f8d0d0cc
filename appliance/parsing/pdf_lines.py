"""Printed lines of a PDF page and how they become paragraphs again.

A PDF knows only where glyphs stand. Two lines belong to one paragraph if the first word of the second would not have
fitted on the first, if they are of one size, and if the gap between them is the usual one of the page.
"""

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pypdfium2

_MARGIN_SHARE = 0.12  # of the page height, at the top and at the bottom
_SAME_SIZE_SHARE = 0.12
_EXTRA_GAP_SHARE = 0.3  # of the line height, above the usual gap
_NEIGHBOURS = 8  # lines before and after that tell how wide the column is
_BULLET = re.compile(r"[•‣◦▪▫●○■□]\s")
_MAYBE_BULLET = re.compile(r"[–—*·-]\s|\(?\d{1,3}[.)]\s+[A-Z]|\(?[a-z]\)\s")  # a wrapped line may begin so too
_LINE_END_HYPHEN = "\ufffe"  # what PDFium puts where a word is divided at the end of a line


@dataclass(frozen=True)
class PrintedLine:
    """One line in reading order. Positions in points from the lower left corner; all 0 if the page tells none.

    A word divided at the end of a printed line makes PDFium report both lines as one: `left` and `top` are those of the
    first glyph, `right` and `bottom` those of the last.
    """

    text: str
    left: float = 0.0
    right: float = 0.0
    top: float = 0.0
    bottom: float = 0.0
    height: float = 0.0
    in_margin: bool = False


def read_lines(page: pypdfium2.PdfPage) -> list[PrintedLine]:
    """Read the lines of one page, in the order PDFium gives them. Raises `PdfiumError`."""
    text_page = page.get_textpage()
    try:
        text = text_page.get_text_range()
        # Glyphs without a character would shift the indices: then there are only lines, no positions.
        has_positions = len(text) == text_page.count_chars()
        page_height = page.get_height()
        lines = []
        for match in re.finditer(r"[^\r\n]+", text):
            stripped = match.group().strip()
            if not stripped:
                continue
            if not has_positions:
                lines.append(PrintedLine(stripped))
                continue
            first = match.start() + match.group().index(stripped[0])
            last = first + len(stripped) - 1
            left, bottom, _, top = text_page.get_charbox(first, loose=True)
            height = top - bottom
            _, last_bottom, right, _ = text_page.get_charbox(last, loose=True)
            middle = (top + bottom) / 2
            edge = _MARGIN_SHARE * page_height
            in_margin = middle < edge or middle > page_height - edge
            lines.append(PrintedLine(stripped, left, right, top, last_bottom, height, in_margin))
        return lines
    finally:
        text_page.close()


def join_lines(lines: Sequence[PrintedLine]) -> str:
    """Rejoin lines: a space within a paragraph, a line feed after a short line, a blank line where there is a gap."""
    gaps = [a.bottom - b.top for a, b in pairwise(lines) if a.bottom >= b.top - b.height]
    usual_gap = statistics.median(gaps) if gaps else 0.0
    pieces = []
    for index, line in enumerate(lines):
        if index:
            pieces.append(_separator(lines, index, usual_gap))
        pieces.append(line.text)
    return _rejoin_words("".join(pieces))


def _separator(lines: Sequence[PrintedLine], index: int, usual_gap: float) -> str:
    """What stands between line `index - 1` and line `index`."""
    above, line = lines[index - 1], lines[index]
    if not above.height or not line.height:
        return "\n"
    if abs(above.height - line.height) > _SAME_SIZE_SHARE * max(above.height, line.height):
        return "\n\n"
    if above.bottom - line.top > usual_gap + _EXTRA_GAP_SHARE * line.height:
        return "\n\n"
    is_item = _BULLET.match(line.text) or (above.text[-1] in ".!?:;" and _MAYBE_BULLET.match(line.text))
    if is_item or _next_word_fits(lines, index):
        return "\n"
    return " "


def _next_word_fits(lines: Sequence[PrintedLine], index: int) -> bool:
    """Would the first word of the line have fitted on the line above? Then the line above ended on purpose."""
    above, line = lines[index - 1], lines[index]
    around = lines[max(0, index - _NEIGHBOURS) : index + _NEIGHBOURS]
    column_right = max(near.right for near in around if near.left < above.right and near.right > above.left)
    word, *_ = line.text.split(maxsplit=1)
    glyph_width = max(line.right - line.left, 0.0) / len(line.text)
    return above.right + (len(word) + 1.5) * glyph_width < column_right


def _rejoin_words(text: str) -> str:
    """Put divided words together; keep the hyphen of a compound ("state-of-the-art", "Anglo-Saxon", "5-6")."""
    first, *rest = text.split(_LINE_END_HYPHEN)
    pieces = [first]
    for part in rest:
        part = part.lstrip()
        before, after = pieces[-1][-40:].rpartition(" ")[2], part[:40].partition(" ")[0]
        is_compound = "-" in before or "-" in after or not after[:1].islower() or not before[-1:].isalpha()
        pieces.append(f"-{part}" if is_compound else part)
    return "".join(pieces)
