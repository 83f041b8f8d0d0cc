"""The one connection to the catalog: its settings, its lock, its transactions, and what its errors mean."""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from storage.catalog import migrations
from storage.catalog.schema import APPLICATION_ID
from storage.errors import CatalogDamaged, DiskFull, HomeBusy, StorageError

BUSY_TIMEOUT_MS = 5000
SECTOR_BYTES = 512
"""Every page size of SQLite is a multiple of it."""

READ_ONLY_CHECK_LIMIT_BYTES = 32 * 1024 * 1024
"""A reader checks a file up to this size only: `status` must answer at once; every writer checks the whole."""

_SETTINGS = (
    "secure_delete = ON",
    "foreign_keys = ON",
    "mmap_size = 0",
    "temp_store = MEMORY",
    "trusted_schema = OFF",
    "cell_size_check = ON",
    "synchronous = FULL",
    "wal_autocheckpoint = 1000",
)
_DAMAGED = frozenset(
    {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_SCHEMA}
)
_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_NOT_WRITABLE = frozenset({sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN})
_REFUSED = frozenset({sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG})


class Connection:
    """SQLite behind one lock; `read()` and `write()` are the only ways to it. Never use it across a fork."""

    def __init__(self, file: Path, *, read_only: bool = False) -> None:
        """Open `file`, set it up, bring it up to date (writers) and check it. Raises the errors of `base`."""
        self.file = file
        self.read_only = read_only
        self._lock = threading.RLock()
        if not read_only and not file.exists():
            os.close(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600))
        if self._is_torn():
            raise CatalogDamaged(self._damage("its end is missing"))
        mode = "rw"
        if read_only:
            mode = "ro&immutable=1" if self._never_changes() else "ro"
        with self._explained():
            self._sqlite = sqlite3.connect(
                f"{file.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False
            )
        try:
            with self._explained():
                self._set_up()
        except StorageError:
            self._sqlite.close()
            raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """The connection, alone, for statements that only read."""
        with self._lock, self._explained():
            yield self._sqlite

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """The connection, alone, in a transaction that is committed at the end or leaves nothing (also nested)."""
        with self._lock, self._explained():
            if self.read_only:
                raise StorageError(f"{self.file} was opened for reading only: open it for writing to change it")
            if self._sqlite.in_transaction:
                yield self._sqlite
                return
            self._sqlite.execute("BEGIN IMMEDIATE")
            try:
                yield self._sqlite
                self._sqlite.execute("COMMIT")
            finally:
                if self._sqlite.in_transaction:
                    with suppress(sqlite3.Error):  # the error under way is the one to tell
                        self._sqlite.execute("ROLLBACK")

    def checkpoint(self) -> bool:
        """Empty the log into the file. False where a reader of another process kept that from happening."""
        with self.read() as sqlite:
            busy, _, _ = sqlite.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            return not busy

    def faults(self) -> list[str]:
        """Everything SQLite's full check and the foreign keys find wrong; empty when all is well."""
        with self.read() as sqlite:
            found = [str(row[0]) for row in sqlite.execute("PRAGMA integrity_check")]
            found += [f"{row[0]} row {row[1]} points nowhere" for row in sqlite.execute("PRAGMA foreign_key_check")]
        return [line for line in found if line != "ok"]

    def close(self) -> None:
        """Empty the log (writers) and close. Safe to repeat."""
        with self._lock:
            if not self.read_only:
                with suppress(StorageError, sqlite3.ProgrammingError):  # a full disk or a second close
                    self.checkpoint()
            self._sqlite.close()

    def _set_up(self) -> None:
        sqlite = self._sqlite
        sqlite.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        for setting in _SETTINGS:
            sqlite.execute(f"PRAGMA {setting}")
        self._recognise()
        if self.read_only:
            sqlite.execute("PRAGMA query_only = ON")
        else:
            sqlite.execute("PRAGMA journal_mode = WAL")
        if not self.read_only or self.file.stat().st_size <= READ_ONLY_CHECK_LIMIT_BYTES:
            verdict = sqlite.execute("PRAGMA quick_check(1)").fetchone()[0]
            if verdict != "ok":
                raise CatalogDamaged(self._damage(str(verdict)))
        if not self.read_only:
            migrations.apply(sqlite)

    def _is_torn(self) -> bool:
        """No whole number of sectors, and no log to make it good: SQLite would read zeros for what is missing."""
        log = self.file.with_name(self.file.name + "-wal")
        torn = self.file.exists() and self.file.stat().st_size % SECTOR_BYTES != 0
        return torn and not (log.exists() and log.stat().st_size)

    def _never_changes(self) -> bool:
        """A folder nobody can write to, without a log: SQLite, which would make one, is told to need none."""
        log, index = (self.file.with_name(self.file.name + ending) for ending in ("-wal", "-shm"))
        logged = log.exists() and (log.stat().st_size > 0 or index.exists())
        return not logged and not os.access(self.file.parent, os.W_OK)

    def _recognise(self) -> None:
        """Refuse the database of another program, and one that a newer version wrote."""
        objects = self._sqlite.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if not objects and not self.read_only:
            return
        application_id = self._sqlite.execute("PRAGMA application_id").fetchone()[0]
        steps = migrations.applied_steps(self._sqlite)
        half_made = not self.read_only and steps == [] and application_id == 0
        only_bookkeeping = "SELECT count(*) FROM sqlite_master WHERE tbl_name NOT IN ('_sqlite_migrations')"
        if half_made and not self._sqlite.execute(only_bookkeeping).fetchone()[0]:
            return  # a kill between the bookkeeping and the first step
        if application_id != APPLICATION_ID:
            raise CatalogDamaged(self._damage("not a catalog of this application"))
        unknown = [step for step in steps if step not in migrations.NAMES]
        if unknown:
            raise StorageError(f"{self.file} was written by a newer version ({unknown[-1]}): update this application")

    def _damage(self, reason: str) -> str:
        line = " ".join(reason.split())
        return f"{self.file} is damaged ({line}): run `appliance verify --rebuild` to make it again from the documents"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UnicodeEncodeError as error:
            shown = ascii(error.object)[:120]
            raise StorageError(f"{shown} is not valid Unicode: rename it and try again") from error
        except OverflowError as error:
            raise StorageError(f"{self.file} cannot hold a number above 64 bits: check the value") from error
        except sqlite3.ProgrammingError:
            raise  # a mistake in our own code, or a closed catalog
        except sqlite3.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: sqlite3.Error) -> StorageError:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the low byte is the primary code
        if code == sqlite3.SQLITE_FULL:
            return DiskFull(f"no room left to write {self.file}: free some space on this disk and try again")
        if code in _LOCKED:
            return HomeBusy(f"{self.file} is in use by another process: stop it and try again")
        if code in _REFUSED:
            return StorageError(f"{self.file} refuses the value ({error}): check it and try again")
        if self.read_only and code in _NOT_WRITABLE:
            return StorageError(
                f"{self.file} has a log that cannot be read where nothing can be written: run `appliance status` once"
                " where the data folder can be written to"
            )
        undecodable = not code and isinstance(error, sqlite3.OperationalError)  # text that is not UTF-8
        if code in _DAMAGED or undecodable:
            return CatalogDamaged(self._damage(str(error)))
        if code == sqlite3.SQLITE_INTERRUPT:
            return StorageError("the catalog was interrupted: try again")
        return StorageError(f"{self.file} cannot be used ({error}): check the disk and its permissions")
