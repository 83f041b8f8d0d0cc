"""Documents become text: `DocumentParser` reads files in a process of its own, `find_documents` says which files."""

from appliance.parsing.base import PageSpan, ParsedDocument
from appliance.parsing.cleaning import one_line
from appliance.parsing.finding import FoundFiles, find_documents
from appliance.parsing.limits import ParserLimits
from appliance.parsing.opening import OpenDocument, open_document
from appliance.parsing.process import DocumentParser

__all__ = [
    "DocumentParser",
    "FoundFiles",
    "OpenDocument",
    "PageSpan",
    "ParsedDocument",
    "ParserLimits",
    "find_documents",
    "one_line",
    "open_document",
]
