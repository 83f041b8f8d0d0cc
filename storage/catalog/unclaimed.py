"""Block files that a rebuild could not match with a chunk, because only the model that made them can.

They are kept until a rebuild with that model claims them, a block of the same name is published, or any document of
their collection is deleted: they may be KV of it, and deleting leaves no copy.
"""

# ruff: noqa: S608 - only our own question marks are put into statements

from collections.abc import Sequence

from storage.catalog.section import Section, in_groups, marks


class UnclaimedBlocks(Section):
    """The part of the catalog that knows files without a chunk."""

    def note_unclaimed(self, collection_id: int, files: Sequence[str]) -> None:
        """Keep these files (names in the folder of blocks) from being dropped as strays."""
        with self._connection.write() as sqlite:
            sqlite.executemany(
                "INSERT INTO unclaimed_blocks (file, collection_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
                [(file, collection_id) for file in files],
            )

    def unclaimed(self, collection_id: int | None = None) -> list[str]:
        """The files of one collection, or of all, in order."""
        statement = "SELECT file FROM unclaimed_blocks WHERE ?1 IS NULL OR collection_id = ?1 ORDER BY file"
        with self._connection.read() as sqlite:
            return [str(row[0]) for row in sqlite.execute(statement, (collection_id,))]

    def forget_unclaimed(self, files: Sequence[str]) -> None:
        """The files are gone, or have rows now. Safe to repeat."""
        with self._connection.write() as sqlite:
            for group in in_groups(files):
                sqlite.execute(f"DELETE FROM unclaimed_blocks WHERE file IN ({marks(group)})", group)
