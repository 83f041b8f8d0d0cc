"""Full text: which chunks hold the words of a question (FTS5, BM25, English stems)."""

import sqlite3
import unicodedata

from storage.catalog.section import Section

MAX_TERMS = 64
MAX_QUESTION_CHARACTERS = 20_000
TITLE_WEIGHT = 0.5
"""A word of the title counts half: every chunk of a document carries the same title."""

FUNCTION_WORDS = frozenset(
    "a an and are as at be by for from in is it its of on or that the this to was were with".split()  # noqa: SIM905 - a list of one word a line reads worse
)
"""In almost every English chunk: they tell nothing apart and cost most of the search (at 20,000 chunks 89 of 90 ms)."""


class Words(Section):
    """The part of the catalog that searches words."""

    def search_words(self, collection_id: int, question: str, limit: int) -> list[tuple[int, float]]:
        """The chunks of ready documents that hold any word of `question`: (chunk id, score), best first.

        Any text is safe. A question without words finds nothing.
        """
        expression = match_expression(question)
        if not expression or limit <= 0:
            return []
        with self._connection.read() as sqlite:
            rows = sqlite.execute(
                "SELECT words.rowid, -bm25(words, ?, 1.0) AS score FROM words"
                " JOIN chunks ON chunks.id = words.rowid JOIN documents ON documents.id = chunks.document_id"
                " WHERE words MATCH ? AND chunks.collection_id = ? AND documents.state = 'ready'"
                " ORDER BY score DESC, words.rowid LIMIT ?",
                (TITLE_WEIGHT, expression, collection_id, limit),
            ).fetchall()
        return [(int(chunk_id), float(score)) for chunk_id, score in rows]


def match_expression(question: str) -> str:
    """Every distinct word of `question` in quotes, joined by OR, so that no word is read as an operator.

    Function words are left out where other words remain.
    """
    kept = (
        character if unicodedata.category(character)[0] in "LNM" else " "
        for character in unicodedata.normalize("NFC", question[:MAX_QUESTION_CHARACTERS])
    )
    distinct = list(dict.fromkeys("".join(kept).casefold().split()))
    telling = [term for term in distinct if term not in FUNCTION_WORDS] or distinct
    return " OR ".join(f'"{term}"' for term in telling[:MAX_TERMS])


def insert_words(sqlite: sqlite3.Connection, chunk_id: int, title: str, text: str) -> None:
    """Make a chunk findable, within the caller's transaction."""
    sqlite.execute("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", (chunk_id, title, text))


def remove_words(sqlite: sqlite3.Connection, document_id: str) -> None:
    """Make a document's chunks unfindable; before its rows go or change, because the index asks for the old text."""
    sqlite.execute(
        "INSERT INTO words (words, rowid, title, text) SELECT 'delete', chunk_words.id, chunk_words.title,"
        " chunk_words.text FROM chunk_words JOIN chunks ON chunks.id = chunk_words.id WHERE chunks.document_id = ?",
        (document_id,),
    )


def erase_removed_words(sqlite: sqlite3.Connection) -> None:
    """Write the index again without what was removed; until then its terms are still in the file."""
    sqlite.execute("INSERT INTO words (words) VALUES ('optimize')")
