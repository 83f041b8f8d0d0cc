"""Plain text and Markdown. Markdown stays as written: its marks are readable, and headings guide the chunks."""

import codecs
import re

from appliance.errors import DocumentRejected
from appliance.parsing.base import ParsedDocument, SourceFile
from appliance.parsing.cleaning import clean_text, title_or_stem
from appliance.parsing.limits import ParserLimits, check_text_size, text_too_long

_FRONT_MATTER = re.compile(r"\A---\n(?:[^\n]*\n){0,200}?---[ \t]*(?:\n|\Z)")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^#{1,6}[ \t]+(.+?)[ \t#]*$|^(\S[^\n]*)\n=+[ \t]*$", re.MULTILINE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


def parse_text(source: SourceFile, limits: ParserLimits) -> ParsedDocument:
    """Read a plain text file."""
    text, hidden = clean_text(_decode(source, limits))
    check_text_size(source.name, text, limits)
    return ParsedDocument(title_or_stem("", source.name), "txt", text, flags=("hidden_text",) if hidden else ())


def parse_markdown(source: SourceFile, limits: ParserLimits) -> ParsedDocument:
    """Read a Markdown file. Front matter and comments, which no reader sees, are left out."""
    text, hidden = clean_text(_decode(source, limits))
    text, comments = _COMMENT.subn("", _FRONT_MATTER.sub("", text))
    text = clean_text(text)[0]
    check_text_size(source.name, text, limits)
    heading = _HEADING.search(text)
    title = re.sub(r"[*_`]", "", heading.group(1) or heading.group(2)) if heading else ""
    flags = ("hidden_text",) if hidden or comments else ()
    return ParsedDocument(title_or_stem(title, source.name), "md", text, flags=flags)


def _decode(source: SourceFile, limits: ParserLimits) -> str:
    """Decode by byte order mark, else UTF-8, else Windows-1252, else Latin-1 (which accepts every byte)."""
    data = source.stream.read(limits.text_bytes + 1)
    if len(data) > limits.text_bytes:
        raise text_too_long(source.name, limits)
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            try:
                return data[len(mark) :].decode(encoding)
            except UnicodeDecodeError:
                message = f"{source.name} is damaged {encoding.upper()} text: save it again as UTF-8"
                raise DocumentRejected(message) from None
    for encoding in ("utf-8", "cp1252"):
        try:
            return data.decode(encoding)
        except UnicodeDecodeError:
            continue
    return data.decode("latin-1")
