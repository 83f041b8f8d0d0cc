"""Takes files from Gradio's cache into the data folder, and drops the copies that nothing refers to."""

import os
import secrets
import shutil
import unicodedata
from pathlib import Path

from appliance.errors import DocumentRejected

_NAME_BYTES = 120
_ALLOWED = frozenset(" ._-()+,")


def safe_name(name: str) -> str:
    """A file name of letters, digits and ` ._-()+,` in any script; at most 120 bytes, the ending kept."""
    base = unicodedata.normalize("NFC", name.replace("\\", "/").rsplit("/", 1)[-1])
    kept = "".join(character for character in base if character.isalnum() or character in _ALLOWED).strip(" .")
    stem, dot, ending = kept.rpartition(".")
    if not dot or len(ending) > 10:
        stem, dot, ending = kept, "", ""
    room = _NAME_BYTES - len((dot + ending).encode())
    stem = stem.encode()[:room].decode(errors="ignore").strip(" .")
    return f"{stem or 'document'}{dot}{ending}"


def take_upload(temporary: Path, cache: Path, uploads: Path) -> Path:
    """Copy a file out of Gradio's `cache` to `uploads/<random>/<safe name>` (0600) and delete it there.

    Raises `DocumentRejected` where it is not a plain file inside `cache`: the path comes from the browser.
    """
    name = safe_name(temporary.name)
    if temporary.is_symlink() or not temporary.is_file() or cache.resolve() not in temporary.resolve().parents:
        raise DocumentRejected(f"{name} did not arrive whole: upload it again")
    folder = uploads / secrets.token_hex(8)
    folder.mkdir(mode=0o700, parents=True)
    target = folder / name
    try:
        with temporary.open("rb") as arrived:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as kept:
                shutil.copyfileobj(arrived, kept)
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise DocumentRejected(
            f"{name} cannot be kept ({error.strerror}): free some space and upload it again"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)
        _remove_if_empty(temporary.parent, cache)
    return target


def discard_upload(path: Path, uploads: Path) -> None:
    """Delete an upload together with its random folder; anything that is not an upload stays."""
    if path.is_absolute() and path.parent.parent == uploads:
        shutil.rmtree(path.parent, ignore_errors=True)


def _remove_if_empty(folder: Path, cache: Path) -> None:
    if folder != cache and not any(folder.iterdir()):
        folder.rmdir()
