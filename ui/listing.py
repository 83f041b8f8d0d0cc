"""Which documents the list shows: filtered by words, a page at a time."""

from collections.abc import Sequence
from dataclasses import dataclass

from appliance.service import DocumentSummary

ROWS = 10


@dataclass(frozen=True)
class ListPage:
    """One page of the list: `rows` holds at most `ROWS` documents, `number` counts from 0."""

    rows: tuple[DocumentSummary, ...]
    number: int
    pages: int
    matching: int


def list_page(documents: Sequence[DocumentSummary], words: str, number: int) -> ListPage:
    """The documents whose title, collection or path holds every word (case does not matter), sorted by title."""
    wanted = words.casefold().split()
    matching = sorted(
        (document for document in documents if all(word in _searched(document) for word in wanted)),
        key=lambda document: (document.title.casefold(), document.id),
    )
    pages = max(1, -(-len(matching) // ROWS))
    number = min(max(number, 0), pages - 1)
    return ListPage(tuple(matching[number * ROWS : (number + 1) * ROWS]), number, pages, len(matching))


def _searched(document: DocumentSummary) -> str:
    return f"{document.title} {document.collection} {document.path}".casefold()
