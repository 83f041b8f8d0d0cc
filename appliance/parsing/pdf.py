"""PDF: the text layer of each page, its printed lines rejoined into paragraphs so that sentences are whole."""

import re
from collections import Counter
from collections.abc import Sequence

import pypdfium2
from pypdfium2 import PdfiumError
from pypdfium2.raw import FPDF_ERR_PASSWORD

from appliance.errors import DocumentRejected
from appliance.parsing.base import PageSpan, ParsedDocument, SourceFile
from appliance.parsing.cleaning import clean_text, title_or_stem
from appliance.parsing.limits import ParserLimits, check_text_size, text_too_long
from appliance.parsing.pdf_lines import PrintedLine, join_lines, read_lines

_REPEATED_ON_SHARE = 0.4  # left and right pages may have different running titles
_PAGE_BREAK = "\n\n"


def parse_pdf(source: SourceFile, limits: ParserLimits) -> ParsedDocument:
    """Read a PDF. Pages without a text layer are flagged; a file without any is refused, for it needs OCR."""
    document = _open(source)
    try:
        if len(document) > limits.pages:
            message = f"{source.name} has {len(document)} pages, the limit is {limits.pages}: split it"
            raise DocumentRejected(message)
        lines = _lines_of_all_pages(document, source.name, limits)
        title = document.get_metadata_value("Title")
    finally:
        document.close()
    running = _running_titles(lines)
    texts = [clean_text(join_lines([line for line in page if _key(line) not in running])) for page in lines]
    if all(text.isspace() or not text for text, _ in texts):
        mend = "make it searchable with an OCR program and ingest it again"
        raise DocumentRejected(f"{source.name} has no text layer, it needs OCR: {mend}")
    text, pages = _paginate([text for text, _ in texts])
    check_text_size(source.name, text, limits)
    flags = {"hidden_text": any(hidden for _, hidden in texts), "pages_without_text": len(pages) < len(texts)}
    set_flags = tuple(flag for flag, is_set in flags.items() if is_set)
    return ParsedDocument(title_or_stem(title, source.name), "pdf", text, pages, set_flags)


def _open(source: SourceFile) -> pypdfium2.PdfDocument:
    try:
        return pypdfium2.PdfDocument(source.stream)
    except PdfiumError as error:
        if error.err_code == FPDF_ERR_PASSWORD:
            message = f"{source.name} is encrypted: remove the password and ingest it again"
        else:
            message = f"{source.name} is damaged or cut off: copy or save it again and ingest it again"
        raise DocumentRejected(message) from None


def _lines_of_all_pages(document: pypdfium2.PdfDocument, name: str, limits: ParserLimits) -> list[list[PrintedLine]]:
    pages = []
    characters = 0
    for index in range(len(document)):
        try:
            page = document[index]
            lines = read_lines(page)
            page.close()
        except PdfiumError:
            message = f"{name} is damaged on page {index + 1}: save it again and ingest it again"
            raise DocumentRejected(message) from None
        characters += sum(len(line.text) for line in lines)
        if characters > limits.text_bytes:
            raise text_too_long(name, limits)
        pages.append(lines)
    return pages


def _key(line: PrintedLine) -> str | None:
    """What makes a line in the margin the same on every page: its text without numbers. None for other lines."""
    return re.sub(r"\d+", "#", line.text.strip()) if line.in_margin else None


def _running_titles(pages: Sequence[Sequence[PrintedLine]]) -> frozenset[str | None]:
    """Headers, footers and page numbers: lines in the margin that come again on many pages."""
    counts = Counter(key for page in pages for key in {_key(line) for line in page} if key is not None)
    least = max(2, round(_REPEATED_ON_SHARE * len(pages)))
    return frozenset(key for key, count in counts.items() if count >= least)


def _paginate(texts: Sequence[str]) -> tuple[str, tuple[PageSpan, ...]]:
    """Join the pages, with a blank line between them; pages without text have no span."""
    pieces: list[str] = []
    spans = []
    position = 0
    for number, text in enumerate(texts, start=1):
        if not text or text.isspace():
            continue
        if pieces:
            pieces.append(_PAGE_BREAK)
            position += len(_PAGE_BREAK)
        pieces.append(text)
        spans.append(PageSpan(number, position, position + len(text)))
        position += len(text)
    return "".join(pieces), tuple(spans)
