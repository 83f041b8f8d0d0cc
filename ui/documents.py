"""The documents: drop files, see them become searchable, see what is stored, remove one after a second look."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from appliance.errors import ApplianceError
from appliance.service import Appliance
from ui.ingesting import follow_ingest
from ui.listing import ROWS, list_page
from ui.render import count, document_html, escape_markdown, plain, size
from ui.uploads import discard_upload

_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}


@dataclass(frozen=True)
class _Row:
    frame: gr.Row
    text: gr.Markdown
    remove: gr.Button


@dataclass(frozen=True)
class _List:
    words: gr.Textbox
    number: gr.State
    shown: gr.State  # ids of the documents in the rows
    collection: gr.Dropdown
    heading: gr.Markdown
    rows: tuple[_Row, ...]
    pager: gr.Row
    earlier: gr.Button
    later: gr.Button

    def outputs(self) -> list[Any]:
        cells = [part for row in self.rows for part in (row.frame, row.text)]
        return [self.number, self.shown, self.collection, self.heading, self.pager, *cells]


def documents_page(appliance: Appliance, also_changed: Callable[[gr.events.Dependency], None]) -> Callable[[Any], None]:
    """Lay the documents out in the current `gr.Blocks` and connect them.

    `also_changed(event)` is called for every event after which other parts of the page are out of date. Returns a
    function that makes the list refresh after a given trigger.
    """
    with gr.Row():
        drop = gr.File(
            elem_id="drop",
            label="Add files: txt, md, html, pdf, docx",
            file_count="multiple",
            height=150,
            scale=3,
        )
        with gr.Column(scale=1, min_width=200):
            collection = gr.Dropdown(
                ["default"], value="default", label="Into collection", allow_custom_value=True, elem_id="into"
            )
            gr.Markdown("Files stay on this computer. They are copied in, read once and kept.", elem_classes="quiet")
    progress = gr.Markdown(elem_id="ingest", latex_delimiters=[])
    listing, chosen, confirm = _lay_out_list(collection)
    show = partial(_show, appliance)
    inputs = [listing.words, listing.number]

    def ingest(files: list[str] | None, into: str | None) -> Iterator[tuple[Any, str]]:
        for told in follow_ingest(appliance, [Path(file) for file in files or ()], (into or "").strip() or "default"):
            yield None, told

    adding = drop.upload(ingest, [drop, collection], [drop, progress], **{**_QUIET, "concurrency_limit": 2})
    added = adding.then(show, inputs, listing.outputs(), **_QUIET)
    removed = _connect_removal(appliance, listing, chosen, confirm, progress)
    changed = removed.then(show, inputs, listing.outputs(), **_QUIET)
    listing.words.change(lambda words: show(words, 0), listing.words, listing.outputs(), **_QUIET)
    for button, step in ((listing.earlier, -1), (listing.later, 1)):
        button.click(lambda words, number, step=step: show(words, number + step), inputs, listing.outputs(), **_QUIET)
    also_changed(added)
    also_changed(changed)
    return lambda trigger: trigger(show, inputs, listing.outputs(), **_QUIET)


def _lay_out_list(
    collection: gr.Dropdown,
) -> tuple[_List, gr.State, tuple[gr.Column, gr.Markdown, gr.Button, gr.Button]]:
    with gr.Column(visible=False, elem_id="confirm") as confirm:
        asked = gr.Markdown(latex_delimiters=[])
        with gr.Row():
            keep = gr.Button("Keep it", size="sm")
            remove = gr.Button("Remove it", variant="stop", size="sm", elem_id="remove-it")
    with gr.Row(elem_id="list-head"):
        heading = gr.Markdown(elem_id="list-heading", latex_delimiters=[])
        words = gr.Textbox(
            label="Find", show_label=False, container=False, placeholder="Find a document", elem_id="find", scale=0
        )
    rows = []
    for _ in range(ROWS):
        with gr.Row(visible=False, elem_classes="document-row") as frame:
            text = gr.Markdown(latex_delimiters=[])
            rows.append(_Row(frame, text, gr.Button("Remove", size="sm", variant="secondary", scale=0)))
    with gr.Row(visible=False, elem_id="pager") as pager:
        earlier, later = gr.Button("Earlier", size="sm"), gr.Button("Later", size="sm")
    listing = _List(words, gr.State(0), gr.State([]), collection, heading, tuple(rows), pager, earlier, later)
    return listing, gr.State(""), (confirm, asked, keep, remove)


def _show(appliance: Appliance, words: str | None, number: int) -> list[Any]:
    """Values for `_List.outputs`."""
    documents = appliance.documents()
    page = list_page(documents, words or "", number)
    kv_bytes = sum(document.kv_bytes for document in documents)
    heading = "No documents yet" if not documents else f"{count(len(documents), 'document')} · {size(kv_bytes)} KV"
    if words and words.strip():
        heading = f"{page.matching:,} of {heading}"
    where = f" · page {page.number + 1} of {page.pages}" if page.pages > 1 else ""
    names = sorted({"default", *appliance.collections()})
    values = [page.number, [row.id for row in page.rows], gr.update(choices=names)]
    values += [f"### {heading}{where}", gr.update(visible=page.pages > 1)]
    for index in range(ROWS):
        used = index < len(page.rows)
        values += [gr.update(visible=used), document_html(page.rows[index]) if used else ""]
    return values


def _connect_removal(
    appliance: Appliance,
    listing: _List,
    chosen: gr.State,
    confirm: tuple[gr.Column, gr.Markdown, gr.Button, gr.Button],
    told: gr.Markdown,
) -> gr.events.Dependency:
    """Connect the buttons; returns the event after which a document may be gone."""
    box, asked, keep, remove = confirm

    def ask_first(index: int, shown: list[str]) -> tuple[Any, str, str]:
        found = [document for document in appliance.documents() if index < len(shown) and document.id == shown[index]]
        if not found:
            return gr.update(visible=False), "", ""
        document = found[0]
        what = f"its text, search entries and {count(document.chunks_with_kv, 'KV block')}"
        question = f"**Remove {escape_markdown(document.title)}?** Deletes {what}. A file in your own folders stays."
        return gr.update(visible=True), question, document.id

    def remove_now(identifier: str) -> tuple[Any, str, str]:
        paths = [document.path for document in appliance.documents() if document.id == identifier]
        try:
            appliance.remove(identifier)
        except ApplianceError as error:
            return gr.update(visible=False), f'<p class="failure">{plain(str(error))}</p>', ""
        for path in paths:
            discard_upload(Path(path), appliance.home.uploads)
        return gr.update(visible=False), "", ""

    for index, row in enumerate(listing.rows):
        row.remove.click(partial(ask_first, index), listing.shown, [box, asked, chosen], **_QUIET)
    keep.click(lambda: (gr.update(visible=False), ""), None, [box, chosen], **_QUIET)
    return remove.click(remove_now, chosen, [box, told, chosen], **_QUIET)
