"""The formats that can be read. Each parser is imported when its first file comes, so that a worker starts quickly."""

from appliance.errors import DocumentRejected
from appliance.parsing.base import Parse


def parser_for(kind: str) -> Parse:
    """Return the parser of a kind of document (see `sniff.KINDS`)."""
    match kind:
        case "txt":
            from appliance.parsing.plain import parse_text as parse
        case "md":
            from appliance.parsing.plain import parse_markdown as parse
        case "html":
            from appliance.parsing.html import parse_html as parse
        case "pdf":
            from appliance.parsing.pdf import parse_pdf as parse
        case "docx":
            from appliance.parsing.docx import parse_docx as parse
        case _:
            raise DocumentRejected(f"no parser reads documents of the kind {kind}: convert the file to PDF or text")
    return parse
