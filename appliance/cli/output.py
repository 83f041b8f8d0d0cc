"""Printing: tables and sizes for people, one JSON object for scripts, a bar for progress."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from appliance.ingest import IngestProgress


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    click.echo(printable(json.dumps(value, indent=2, ensure_ascii=False)))


def printable(text: str) -> str:
    """The text with what is no Unicode (half characters, as broken file names hold) escaped as JSON does."""
    return text.encode("utf-8", "backslashreplace").decode()


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell."""
    lines = [[str(cell) for cell in row] for row in (titles, *rows)]
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
            bar.set_description_str(what[:48], refresh=False)
            bar.update(done - bar.n)

        yield tell
