"""Word documents: paragraphs and tables in the order of the body.

python-docx opens the file; the text is taken from the XML below it, because `Paragraph.text` leaves out inserted text
of tracked changes, content controls and text boxes.
"""

from collections.abc import Iterator
from typing import Any

import docx
from docx.opc.exceptions import PackageNotFoundError
from docx.oxml.ns import qn
from lxml.etree import XMLSyntaxError

from appliance.errors import DocumentRejected
from appliance.parsing.archive import check_archive, has_member
from appliance.parsing.base import ParsedDocument, SourceFile
from appliance.parsing.cleaning import clean_text, title_or_stem
from appliance.parsing.limits import ParserLimits, check_text_size

_PARAGRAPH, _TABLE, _ROW, _CELL = qn("w:p"), qn("w:tbl"), qn("w:tr"), qn("w:tc")
_RUN, _TEXT, _LIST_MARK, _STYLE = qn("w:r"), qn("w:t"), qn("w:numPr"), qn("w:pStyle")
_VALUE = qn("w:val")
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"  # the same text a second time
_DROPPED = frozenset({qn("w:del"), qn("w:moveFrom"), _FALLBACK, qn("w:pPr"), qn("w:rPr"), qn("w:instrText")})
_SIGNS = {qn("w:tab"): " ", qn("w:br"): "\n", qn("w:cr"): "\n", qn("w:noBreakHyphen"): "-", _PARAGRAPH: "\n"}


def parse_docx(source: SourceFile, limits: ParserLimits) -> ParsedDocument:
    """Read a Word document. Deleted text of tracked changes is left out; hidden text is left out and flagged."""
    check_archive(source, limits)
    if not has_member(source.stream, "word/document.xml"):
        raise DocumentRejected(f"{source.name} is a zip archive without a Word document in it: save it as .docx")
    try:
        document = docx.Document(source.stream)
    except (PackageNotFoundError, XMLSyntaxError, KeyError, ValueError):
        raise DocumentRejected(f"{source.name} is damaged: open it in Word and save it again") from None
    body = _Body()
    body.write(document.element.body)
    text, hidden = clean_text(body.text())
    check_text_size(source.name, text, limits)
    title = title_or_stem(document.core_properties.title or body.heading, source.name)
    return ParsedDocument(title, "docx", text, flags=("hidden_text",) if hidden or body.hid_text else ())


class _Body:
    """Collects the visible text of a document body."""

    def __init__(self) -> None:
        self.heading = ""
        self.hid_text = False
        self._blocks: list[str] = []
        self._last_kind = ""

    def text(self) -> str:
        return "".join(self._blocks)

    def write(self, body: Any) -> None:
        for block in _blocks(body):
            if block.tag == _TABLE:
                self._write_table(block)
                continue
            text = self._text(block).strip()
            style = next((str(mark.get(_VALUE, "")) for mark in block.iter(_STYLE)), "")
            if not self.heading and style.startswith(("Heading", "Title")):
                self.heading = text
            is_item = style.startswith("List") or next(block.iter(_LIST_MARK), None) is not None
            is_heading = style.startswith(("Heading", "Title"))  # numbered headings are no list
            if is_item and not is_heading:
                self._add("item", f"- {text}" if text else "")
            else:
                self._add("paragraph", text)

    def _write_table(self, table: Any) -> None:
        for row in table.iter(_ROW):
            if any(parent.tag == _ROW for parent in row.iterancestors()):
                continue  # a row of a table inside a cell: its text is part of that cell
            cells = (" ".join(self._text(cell).split()) for cell in row.iter(_CELL) if _row_of(cell) is row)
            self._add("row", " | ".join(cell for cell in cells if cell))
        self._last_kind = ""

    def _add(self, kind: str, text: str) -> None:
        """Rows and items follow each other line by line; all else is a paragraph of its own."""
        if text:
            self._blocks.append("\n" if kind == self._last_kind and kind in {"row", "item"} else "\n\n")
            self._blocks.append(text)
            self._last_kind = kind

    def _text(self, root: Any) -> str:
        pieces: list[str] = []
        stack = [iter(root)]
        while stack:
            element = next(stack[-1], None)
            if element is None:
                stack.pop()
            elif element.tag == _TEXT:
                pieces.append(element.text or "")
            elif element.tag == _RUN and _is_hidden(element):
                self.hid_text = self.hid_text or any(text.text for text in element.iter(_TEXT))
            elif element.tag not in _DROPPED:
                pieces.append(_SIGNS.get(element.tag, ""))
                stack.append(iter(element))
        return "".join(pieces)


def _blocks(body: Any) -> Iterator[Any]:
    """Yield paragraphs and tables in order, also those inside content controls and tracked insertions."""
    stack = [iter(body)]
    while stack:
        element = next(stack[-1], None)
        if element is None:
            stack.pop()
        elif element.tag in {_PARAGRAPH, _TABLE}:
            yield element
        elif element.tag not in _DROPPED:
            stack.append(iter(element))


def _row_of(cell: Any) -> Any:
    return next(cell.iterancestors(_ROW))


def _is_hidden(run: Any) -> bool:
    properties = run.find(qn("w:rPr"))
    mark = properties.find(qn("w:vanish")) if properties is not None else None
    return mark is not None and mark.get(_VALUE, "1") not in {"0", "false", "off"}
