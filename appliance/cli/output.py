"""Printing: tables and sizes for people, one JSON object for scripts, a bar for progress."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from appliance.ingest import IngestProgress

# Control characters (but line breaks and tabs), halves of characters, and marks that turn the reading order around.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_BREAKS = re.compile("[\t\n\u2028\u2029]")
# What JSON allows in a string as it is and a terminal (or UTF-8) does not take.
_NOT_IN_JSON = re.compile("[\x7f-\x9f\ud800-\udfff]")


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    click.echo(_NOT_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def printable(text: str) -> str:
    """Text of several lines, fit for a terminal: what would steer it (escape sequences, half characters) is escaped.

    For names, titles, document text and what a model said: none of them may move the cursor or set the window's title.
    """
    return _STEERING.sub(_escaped, text)


def printable_line(text: str) -> str:
    """The same for what must stay on its line, such as a file name: line breaks and tabs are escaped, too."""
    return _BREAKS.sub(_escaped, printable(text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell."""
    lines = [[printable_line(str(cell)) for cell in row] for row in (titles, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(titles))]
    for line in lines:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def size_text(size_bytes: float) -> str:
    """`12.3 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


@contextmanager
def ingest_bar() -> Iterator[Callable[["IngestProgress"], None]]:
    """A bar on standard error: files while they are read, then chunks, with rate and time left."""
    from tqdm import tqdm

    with tqdm(file=sys.stderr, dynamic_ncols=True, unit="file", leave=True, mininterval=0.3) as bar:

        def tell(progress: "IngestProgress") -> None:
            unit = "chunk" if progress.stage == "kv" else "file"
            done, total = (
                (progress.chunks_done, progress.chunks_total) if unit == "chunk" else (progress.done, progress.total)
            )
            if bar.unit != unit:
                bar.unit = unit
                bar.reset(total)
            bar.total = total
            what = f"KV of {progress.document}" if unit == "chunk" and progress.document else progress.document
            bar.set_description_str(printable_line(what[:48]), refresh=False)
            bar.update(done - bar.n)

        yield tell


@contextmanager
def stage_bar() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on standard error whose name and length change with the stage."""
    from tqdm import tqdm

    with tqdm(file=sys.stderr, dynamic_ncols=True, leave=False, mininterval=0.3) as bar:

        def tell(stage: str, done: int, total: int) -> None:
            bar.set_description_str(stage, refresh=False)
            bar.total = total
            bar.update(done - bar.n)

        yield tell
