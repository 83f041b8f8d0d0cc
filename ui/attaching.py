"""Files attached to the chat: read into the chosen collection; every question is about them until they are cleared."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from appliance.errors import ApplianceError
from appliance.service import Appliance, IngestProgress, IngestReport
from ui.background import in_background
from ui.ingesting import Arrivals, taken_uploads
from ui.render import attached_html, duration, plain


@dataclass(frozen=True)
class AttachedDocument:
    """A document that questions are about; `name` is its file's."""

    id: str
    name: str


Attached = tuple[AttachedDocument, ...]


def follow_attach(
    appliance: Appliance, arrived: Sequence[Path], collection: str, before: Attached
) -> Iterator[tuple[str, Attached]]:
    """Read the files at `arrived` (in Gradio's cache); yields the line to show and what is attached by then.

    `before` stays attached. A file that cannot go in is named with the reason, the others are attached all the same.
    """
    report: IngestReport | None = None
    failures: list[str] = []

    with taken_uploads(appliance, arrived) as arrivals:

        def work(emit: Callable[[IngestProgress | IngestReport], None]) -> None:
            emit(appliance.attach([Path(path) for path in arrivals.names], collection=collection, progress=emit))

        reading, began_s = next(iter(arrivals.names.values()), ""), time.monotonic()
        try:
            if reading:
                yield reading_html(reading, 0.0), before
            for batch in in_background(work) if reading else ():
                for event in batch:
                    if isinstance(event, IngestReport):
                        report = event
                    else:
                        reading = event.document
                yield reading_html(reading, time.monotonic() - began_s), before
        except ApplianceError as error:
            failures.append(str(error))
        failures += _failures(report, arrivals)
        attached = _joined(before, report, arrivals)
    yield line_html(attached, failures), attached


def line_html(attached: Attached, failures: Sequence[str] = ()) -> str:
    """What the questions are about, and why some files are not among it; empty where there is nothing to say."""
    return attached_html([document.name for document in attached], failures)


def reading_html(name: str, waited_s: float) -> str:
    """The line while a file is read."""
    since = f" {duration(waited_s)}" if waited_s >= 1 else ""
    return f'<p class="reading">Reading <b>{plain(name)}</b> …{since}</p>'


def still_there(appliance: Appliance, attached: Attached, collection: str) -> Attached:
    """Those of `attached` that this collection holds now: the list comes back from a page that may be old."""
    try:
        held = {document.id for document in appliance.documents(collection)} if attached else set()
    except ApplianceError:  # no such collection any more
        held = set()
    return tuple(document for document in attached if document.id in held)


def _failures(report: IngestReport | None, arrivals: Arrivals) -> list[str]:
    """One line a file; the disk's trouble once."""
    entries = [*(report.documents if report else ()), *arrivals.refused]
    lines = [entry.error for entry in entries if entry.error is not None and entry.state == "failed"]
    ended = [report.error] if report is not None and report.error is not None else []
    return list(dict.fromkeys([*ended, *lines]))


def _joined(before: Attached, report: IngestReport | None, arrivals: Arrivals) -> Attached:
    """`before` and what the report added, each document once, under the name it came with last."""
    names = {document.id: document.name for document in before}
    for entry in report.documents if report else ():
        if entry.id is not None:
            names[entry.id] = arrivals.names.get(entry.path, Path(entry.path).name)
    return tuple(AttachedDocument(identifier, name) for identifier, name in names.items())
