"""Names of collections: what one may be called, and which of them is meant."""

import unicodedata

from appliance.errors import ApplianceError, NoDocuments, UnknownCollection
from storage.catalog import Catalog, CollectionRow

LONGEST_NAME = 200


def check_collection_name(name: str) -> None:
    """Refuse a name that nobody could type or read again. Raises ApplianceError."""
    if not name.strip():
        raise ApplianceError("the collection's name is empty: give it one with --collection, or leave the option out")
    if len(name) > LONGEST_NAME:
        raise ApplianceError(
            f"the collection's name {name[:20]!r}… has {len(name)} characters: choose one of at most {LONGEST_NAME}"
        )
    # Control characters and halves of characters: the first move a terminal's cursor, the second cannot be stored.
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in name):
        raise ApplianceError(f"the collection's name {name!a} holds control characters: choose one without")


def find_collection(catalog: Catalog, name: str) -> CollectionRow:
    """The collection of this name. Raises NoDocuments where there is none at all, UnknownCollection, ApplianceError."""
    check_collection_name(name)
    known = catalog.collections()
    for row in known:
        if row.name == name:
            return row
    if not known:
        raise NoDocuments("no documents yet: run `appliance ingest FOLDER` first")
    shown = ", ".join(row.name for row in known)
    raise UnknownCollection(f"collection {name!r} is unknown: choose one of {shown}, or ingest into it first")
