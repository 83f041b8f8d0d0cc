"""Errors of the floors below, as this floor's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from appliance.errors import ApplianceError
from models.errors import ModelError
from storage.errors import StorageError


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Errors of the floors below become ApplianceErrors with the same line."""
    try:
        yield
    except (StorageError, ModelError) as error:
        raise ApplianceError(str(error)) from error
