"""Deleting a document: out of sight first, then its files (the caller), then its rows, then every trace in the file."""

from storage.catalog.base import DocumentRow
from storage.catalog.rows import document_rows
from storage.catalog.section import Section
from storage.catalog.sources import retire
from storage.catalog.words import erase_removed_words, remove_words
from storage.errors import DiskFull, StorageError, UnknownRow

_ERASE = "erase removed words"


class Deletion(Section):
    """The part of the catalog that deletes documents."""

    def begin_delete(self, document_id: str) -> None:
        """No reader sees the document, its paths or the blocks that it alone uses from here on. Safe to repeat.

        Raises UnknownRow.
        """
        with self._connection.write() as sqlite:
            row = sqlite.execute("SELECT state FROM documents WHERE id = ?", (document_id,)).fetchone()
            if row is None:
                raise UnknownRow(f"there is no document {document_id!r}: see `appliance list`")
            if row[0] == "ready":
                retire(sqlite, document_id)

    def finish_delete(self, *document_ids: str) -> bool:
        """Remove the rows, after the files are gone, and leave no byte of the text behind. Safe to repeat.

        Several at once cost one pass over the word index. Raises StorageError for a document that is `ready`.
        Returns what `finish_erasing` says.
        """
        with self._connection.write() as sqlite:
            for document_id in document_ids:
                row = sqlite.execute("SELECT state FROM documents WHERE id = ?", (document_id,)).fetchone()
                if row is None:
                    continue
                if row[0] != "deleting":
                    raise StorageError(f"document {document_id!r} is in use: begin its deletion first")
                remove_words(sqlite, document_id)
                sqlite.execute("DELETE FROM documents WHERE id = ?", (document_id,))
            sqlite.execute("INSERT INTO unfinished (work) VALUES (?) ON CONFLICT DO NOTHING", (_ERASE,))
        return self.finish_erasing()

    def finish_erasing(self) -> bool:
        """Erase what deletions left in the word index and the log, where that is still to be done.

        Apart from the deletion itself, because it needs room in the log: on a full disk, or while another process
        reads, the rows are gone all the same, this returns False, and the next opening tries again.
        """
        with self._connection.read() as sqlite:
            if sqlite.execute("SELECT 1 FROM unfinished WHERE work = ?", (_ERASE,)).fetchone() is None:
                return True
        try:
            with self._connection.write() as sqlite:
                erase_removed_words(sqlite)
            if not self._connection.checkpoint():
                return False
            with self._connection.write() as sqlite:
                sqlite.execute("DELETE FROM unfinished WHERE work = ?", (_ERASE,))
        except DiskFull:
            return False
        return True

    def deleting_documents(self) -> list[DocumentRow]:
        """Documents whose deletion has begun: unlink their files, then finish."""
        with self._connection.read() as sqlite:
            return document_rows(sqlite, "documents.state = 'deleting'", ())
