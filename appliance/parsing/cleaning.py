"""Text as the rest of the house may rely on it: NFC, line feeds only, nothing that a reader could not see.

Characters that are invisible or turn the reading order around can hide instructions from the person who ingests a
document (OWASP LLM08); they are removed, and the document is flagged.
"""

import re
import unicodedata
from pathlib import PurePath

LONGEST_TITLE = 200

_LINE_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u202f\u205f]")
# Zero-width, bidi, invisible operators, fillers, tags and variation selectors: all have been used to smuggle text.
_INVISIBLE = re.compile(
    "[\u200b-\u200f\u202a-\u202e\u2060-\u206f\u061c\u180e\ufeff\u115f\u1160\u3164\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u00ad\ufffe\uffff]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_BLANK_LINES = re.compile(r"\n[ \t]*(?:\n[ \t]*)+\n")


def clean_text(text: str) -> tuple[str, bool]:
    """Return the cleaned text and whether hidden characters were in it; a byte order mark at the start is none."""
    text = _LINE_BREAKS.sub("\n", text.removeprefix("\ufeff"))
    text, hidden = _INVISIBLE.subn("", text)
    text = _SURROGATES.sub("\ufffd", _CONTROL.sub("", _SPACES.sub(" ", text)))
    text = _BLANK_LINES.sub("\n\n", unicodedata.normalize("NFC", text))
    return text.strip("\n"), hidden > 0


def one_line(text: str, limit: int = LONGEST_TITLE) -> str:
    """Make text fit for a title or a message: clean, on one line, at most `limit` characters."""
    line = " ".join(clean_text(text)[0].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def title_or_stem(title: str, file_name: str) -> str:
    """Return the document's own title if it says something, else the file's stem with `_` and `-` as spaces."""
    title = re.sub(r"^Microsoft Word - ", "", one_line(title))
    empty_words = {"untitled", "document", "word document", "microsoft word", "title", "(unspecified)", "slide 1"}
    is_file_name = re.fullmatch(r"\S+\.(?:docx?|pdf|indd|tex|rtf|odt|html?|txt|md|dvi)", title, re.IGNORECASE)
    if sum(map(str.isalpha, title)) >= 3 and title.lower() not in empty_words and not is_file_name:
        return title
    stem = one_line(PurePath(file_name).stem)
    return " ".join(re.sub(r"[_-]+", " ", stem).split()) or stem or "document"
