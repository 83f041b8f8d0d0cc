"""HTML: the text that a reader would see, one paragraph per block, one line per list item and table row."""

import re
from collections.abc import Iterator

from bs4 import BeautifulSoup, Tag
from bs4.element import NavigableString, PreformattedString

from appliance.parsing.base import ParsedDocument, SourceFile
from appliance.parsing.cleaning import clean_text, title_or_stem
from appliance.parsing.limits import ParserLimits, check_text_size, text_too_long

# fmt: off
_DROPPED = frozenset(
    {
        "script", "style", "template", "noscript", "nav", "head", "title", "iframe", "object", "embed", "svg", "math",
        "canvas", "audio", "video", "select", "button", "textarea", "datalist"
    }
)
_BLOCKS = frozenset(
    {
        "address", "article", "aside", "blockquote", "body", "caption", "details", "dialog", "div", "dl", "fieldset",
        "figcaption", "figure", "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "html", "main",
        "ol", "p", "pre", "section", "summary", "table", "ul"
    }
)
# fmt: on
_LINES = frozenset({"li", "tr", "dt", "dd", "thead", "tbody", "tfoot"})
_INVISIBLE_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d]*[1-9])", re.I)
# Marks of the layout, taken out of the page's own text; spaces of a `pre` are kept until the layout is done.
_PARAGRAPH, _LINE, _BREAK, _KEPT_SPACE = "\x01", "\x02", "\x03", "\x04"
_MARKS = re.compile("[\x01-\x04]")
_BREAKS = re.compile("[\x01-\x03 ]*[\x01-\x03][\x01-\x03 ]*")


def parse_html(source: SourceFile, limits: ParserLimits) -> ParsedDocument:
    """Read a web page. Scripts, styles and navigation are dropped; hidden elements are dropped and flagged."""
    data = source.stream.read(2 * limits.text_bytes + 1)
    if len(data) > 2 * limits.text_bytes:
        raise text_too_long(source.name, limits)
    soup = BeautifulSoup(data, "html.parser")
    page = _Page()
    page.write(soup)
    text, hidden = clean_text(page.text())
    check_text_size(source.name, text, limits)
    heading = soup.title or soup.h1
    title = title_or_stem(heading.get_text(" ") if heading is not None else "", source.name)
    return ParsedDocument(title, "html", text, flags=("hidden_text",) if hidden or page.hid_text else ())


def _break(marks: re.Match[str]) -> str:
    """One mark or many become one break: a blank line between paragraphs and after two `br`, else a line feed."""
    return "\n\n" if _PARAGRAPH in marks.group() or marks.group().count(_BREAK) > 1 else "\n"


class _Page:
    """Writes the visible text of a tree. The walk keeps its own stack: a hostile page may be nested without end."""

    def __init__(self) -> None:
        self.hid_text = False
        self._pieces: list[str] = []
        self._items: dict[int, int] = {}  # list tag -> items so far

    def text(self) -> str:
        text = _BREAKS.sub(_break, re.sub(r" {2,}", " ", "".join(self._pieces)))
        return re.sub(r"(?: \|)+ *$", "", text, flags=re.MULTILINE).replace(_KEPT_SPACE, " ")

    def write(self, root: Tag) -> None:
        stack: list[tuple[Tag, Iterator[object]]] = [(root, iter(root.children))]
        pre_depth = 0
        while stack:
            tag, children = stack[-1]
            child = next(children, None)
            if child is None:
                stack.pop()
                pre_depth -= tag.name == "pre"
                self._separate(tag, tag.parent or tag, opening=False)
            elif isinstance(child, Tag):
                if not self._is_dropped(child):
                    stack.append((child, iter(child.children)))
                    pre_depth += child.name == "pre"
                    self._separate(child, tag, opening=True)
            elif isinstance(child, NavigableString) and not isinstance(child, PreformattedString):
                text = _MARKS.sub("", str(child))
                if pre_depth:
                    self._pieces.append(text.replace(" ", _KEPT_SPACE).replace("\n", _BREAK))
                else:
                    self._pieces.append(re.sub(r"\s+", " ", text))

    def _separate(self, tag: Tag, parent: Tag, *, opening: bool) -> None:
        if tag.name in _BLOCKS:
            self._pieces.append(_PARAGRAPH)
        elif tag.name == "li" and opening:
            number = self._items[id(parent)] = self._items.get(id(parent), 0) + 1
            self._pieces.append(f"{_LINE}{number}. " if parent.name == "ol" else f"{_LINE}- ")
        elif tag.name == "br":
            self._pieces.append(_BREAK if opening else "")
        elif tag.name in _LINES:
            self._pieces.append(_LINE)
        elif tag.name in {"td", "th"} and not opening:
            self._pieces.append(" | ")

    def _is_dropped(self, tag: Tag) -> bool:
        if tag.name in _DROPPED:
            return True
        style = tag.get("style")
        hidden = tag.has_attr("hidden") or (isinstance(style, str) and _INVISIBLE_STYLE.search(style) is not None)
        if hidden and tag.get_text(strip=True):
            self.hid_text = True
        return hidden or tag.get("aria-hidden") == "true"
