"""A kill while the catalog is being made for the first time."""

import sqlite3
from pathlib import Path

from storage.catalog import Catalog
from storage.home import Home


def test_a_kill_while_the_catalog_is_made_is_made_good(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.create()
    made = sqlite3.connect(home.catalog_file)
    made.executescript(
        "CREATE TABLE _sqlite_migrations (id INTEGER PRIMARY KEY, migration_set TEXT, name TEXT, applied_at TEXT);"
        "CREATE UNIQUE INDEX i ON _sqlite_migrations (migration_set, name)"
    )
    made.close()
    with Catalog.open(home) as catalog:
        assert catalog.collections() == []
