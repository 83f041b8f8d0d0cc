"""Follows uploads from the browser's files to searchable documents, as HTML of how far it is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from appliance.errors import ApplianceError
from appliance.service import Appliance, DocumentEntry, IngestProgress, IngestReport
from ui.background import in_background
from ui.render import count, duration, entries_html, plain, progress_html, size
from ui.uploads import discard_upload, safe_name, take_upload


@dataclass(frozen=True)
class Arrivals:
    """Files in the data folder: the name to show of each path, and an entry for each that was refused on arrival."""

    names: dict[str, str] = field(default_factory=dict)
    refused: list[DocumentEntry] = field(default_factory=list)


@contextmanager
def taken_uploads(appliance: Appliance, arrived: Sequence[Path]) -> Iterator[Arrivals]:
    """The files at `arrived` (in Gradio's cache), moved into the data folder.

    Copies that no document refers to in the end (failed, unchanged) are deleted.
    """
    home, arrivals = appliance.home, Arrivals()
    for temporary in arrived:
        try:
            taken = take_upload(temporary, home.cache, home.uploads)
        except ApplianceError as error:
            name = safe_name(temporary.name)
            arrivals.refused.append(DocumentEntry(path=name, state="failed", chunks=0, error=str(error)))
        else:
            arrivals.names[str(taken)] = taken.name
    try:
        yield arrivals
    finally:
        used = {document.path for document in appliance.documents()}
        for path in arrivals.names.keys() - used:
            discard_upload(Path(path), home.uploads)


def follow_ingest(appliance: Appliance, arrived: Sequence[Path], collection: str) -> Iterator[str]:
    """Copy the files at `arrived` (in Gradio's cache) into the data folder, ingest them, and yield the state as HTML.

    A file that cannot go in gets one line with the reason; the others still go in.
    """
    with taken_uploads(appliance, arrived) as arrivals:
        yield from _ingest(appliance, arrivals.names, arrivals.refused, collection)


def _ingest(
    appliance: Appliance, names: dict[str, str], refused: list[DocumentEntry], collection: str
) -> Iterator[str]:
    report: IngestReport | None = None

    def work(emit: Callable[[IngestProgress | IngestReport], None]) -> None:
        paths = [Path(path) for path in names]
        emit(appliance.ingest(paths, collection=collection, progress=emit))

    try:
        for batch in in_background(work) if names else ():
            for event in batch:
                if isinstance(event, IngestReport):
                    report = event
                else:
                    latest = event
                    yield progress_html(latest)
    except ApplianceError as error:
        yield f'<p class="failure">{plain(str(error))}</p>{entries_html(refused, names)}'
        return
    entries = [*(report.documents if report else ()), *refused]
    ended = f'<p class="failure">{plain(report.error)}</p>' if report and report.error else ""
    yield ended + _summary(report) + entries_html(entries, names)


def _summary(report: IngestReport | None) -> str:
    if report is None or not report.chunks:
        return ""
    added = sum(1 for entry in report.documents if not entry.error)
    told = f"{count(added, 'document')} · {count(report.chunks, 'chunk')} · {size(report.kv_bytes)} KV"
    return f'<p class="summary">{plain(f"{told} · {duration(report.seconds)}")}</p>'
