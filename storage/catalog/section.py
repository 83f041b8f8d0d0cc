"""What the parts of the catalog share: the connection."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TypeVar

from storage.catalog.connection import Connection

T = TypeVar("T")

PARAMETERS_PER_STATEMENT = 500
"""Older SQLite libraries take 999 parameters in one statement."""


class Section:
    """A part of the catalog. `Catalog` is all of them over one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection


def marks(values: Sequence[object]) -> str:
    """One question mark a value, for `IN (...)`."""
    return ", ".join("?" * len(values))


def in_groups(values: Iterable[T], size: int = PARAMETERS_PER_STATEMENT) -> Iterator[list[T]]:
    """The values once each, in order, in lists of at most `size`."""
    unique = iter(dict.fromkeys(values))
    while group := list(islice(unique, size)):
        yield group
