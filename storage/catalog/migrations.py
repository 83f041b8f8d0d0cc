"""How a catalog of an older version becomes one of this version: each step once, in a transaction of its own."""

import sqlite3
from typing import TYPE_CHECKING

from storage.catalog.schema import APPLICATION_ID, HOTNESS, NEIGHBOURS, UNCLAIMED_BLOCKS, statements

if TYPE_CHECKING:
    from sqlite_utils import Database, Migrations

NAMES = ("tables", "unclaimed_blocks", "hotness", "neighbours")
"""Every step there is, in order. A name once released stays."""


def applied_steps(connection: sqlite3.Connection) -> list[str]:
    """The steps this file has been through; empty for a new file."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '_sqlite_migrations'")
    if found.fetchone() is None:
        return []
    rows = connection.execute("SELECT name FROM _sqlite_migrations WHERE migration_set = 'catalog' ORDER BY id")
    return [str(row[0]) for row in rows]


def apply(connection: sqlite3.Connection) -> None:
    """Take the steps that are missing. Raises sqlite3.Error; a step that fails leaves nothing behind."""
    if applied_steps(connection) == list(NAMES):
        return
    from sqlite_utils import Database  # imported here: it loads pandas where it finds it, needed for a new file only

    database = Database(connection, recursive_triggers=False, execute_plugins=False)
    _steps().apply(database)


def _steps() -> "Migrations":
    from sqlite_utils import Migrations

    steps = Migrations("catalog")

    @steps(name="tables")
    def tables(database: "Database") -> None:
        for statement in statements():
            database.conn.execute(statement)
        database.conn.execute(f"PRAGMA application_id = {APPLICATION_ID}")

    @steps(name="unclaimed_blocks")
    def unclaimed_blocks(database: "Database") -> None:
        database.conn.execute(UNCLAIMED_BLOCKS)

    @steps(name="hotness")
    def hotness(database: "Database") -> None:
        for statement in statements(HOTNESS):
            database.conn.execute(statement)

    @steps(name="neighbours")
    def neighbours(database: "Database") -> None:
        for statement in statements(NEIGHBOURS):
            database.conn.execute(statement)

    return steps
