"""What is gone from a folder that was ingested before, and what only looks gone."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from appliance.parsing import FoundFiles, one_line
from storage.catalog import Catalog, DocumentRow, SourceRow


def vanished_sources(
    catalog: Catalog, collection_id: int, paths: Sequence[Path], found: FoundFiles
) -> Iterator[tuple[SourceRow, DocumentRow]]:
    """Paths the collection's documents were read from, below one of these folders, that are gone from the disk.

    A folder in which nothing at all is left may be a disk that is not mounted: nothing counts as gone from it.
    """
    filled = [folder for folder in _folders(paths) if _is_filled(folder, found)]
    for source, document in _sources_below(catalog, collection_id, filled):
        if _is_gone(Path(source.path)):
            yield source, document


def emptied_folders(catalog: Catalog, collection_id: int, paths: Sequence[Path], found: FoundFiles) -> dict[Path, str]:
    """Folders among these that hold nothing now although documents were read from them, each with a line."""
    told: dict[Path, str] = {}
    for folder in _folders(paths):
        if _is_filled(folder, found) or any(path == folder for path, _ in found.refused):
            continue
        count = len(list(_sources_below(catalog, collection_id, [folder])))
        if count:
            documents = "1 document read from it stays" if count == 1 else f"{count} documents read from it stay"
            told[folder] = (
                f"{one_line(str(folder), 1000)} is empty now and {documents}: mount its disk or put the files back,"
                " or remove the documents with `appliance rm`"
            )
    return told


def _folders(paths: Sequence[Path]) -> list[Path]:
    """The folders among the paths, spelled as `find_documents` does. One that cannot be looked at is none."""
    absolute = {Path(os.path.abspath(path)) for path in paths}  # noqa: PTH100 - `resolve` follows links
    return sorted(path for path in absolute if os.path.isdir(path))  # noqa: PTH112 - `is_dir` may raise


def _is_filled(folder: Path, found: FoundFiles) -> bool:
    """Whether any file is left below the folder, be it one that is not read."""
    left_out = (path for path, _ in (*found.skipped, *found.refused))
    return any(path != folder and path.is_relative_to(folder) for path in (*found.accepted, *left_out))


def _sources_below(
    catalog: Catalog, collection_id: int, folders: Sequence[Path]
) -> Iterator[tuple[SourceRow, DocumentRow]]:
    for document in catalog.documents(collection_id):
        for source in catalog.sources_of(document.id):
            if any(Path(source.path).is_relative_to(folder) for folder in folders):
                yield source, document


def _is_gone(path: Path) -> bool:
    """Only where the system says that there is no such file; what cannot be looked at may well be there."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False
