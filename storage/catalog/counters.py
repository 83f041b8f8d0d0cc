"""Counts of what happened over the life of the data folder, such as `blocks_damaged`."""

from storage.catalog.section import Section


class Counters(Section):
    """The part of the catalog that counts."""

    def count(self, event: str, amount: int = 1) -> None:
        """Add to an event's count, durably."""
        with self._connection.write() as sqlite:
            sqlite.execute(
                "INSERT INTO counters (event, amount) VALUES (?, ?)"
                " ON CONFLICT (event) DO UPDATE SET amount = amount + excluded.amount",
                (event, amount),
            )

    def counters(self) -> dict[str, int]:
        """Every event counted so far, by name."""
        with self._connection.read() as sqlite:
            return dict(sqlite.execute("SELECT event, amount FROM counters ORDER BY event").fetchall())
