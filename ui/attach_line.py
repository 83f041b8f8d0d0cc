"""The chat's paper clip, and the line above the question that says which files it is about."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from appliance.service import Appliance
from ui.attaching import Attached, follow_attach, line_html, still_there

_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}


@dataclass(frozen=True)
class AttachLine:
    """`held` is what is attached in this browser session; `frame` is hidden while there is nothing to say."""

    frame: gr.Row
    text: gr.Markdown
    detach: gr.Button
    held: gr.State

    def outputs(self) -> list[Any]:
        """What `shown` gives values for."""
        return [self.held, self.frame, self.text]


def attach_line() -> AttachLine:
    """Lay the line out in the current `gr.Blocks`."""
    with gr.Row(visible=False, elem_id="attached") as frame:
        text = gr.Markdown(latex_delimiters=[])
        detach = gr.Button("Detach", size="sm", scale=0, min_width=56, elem_id="detach")
    return AttachLine(frame, text, detach, gr.State(()))


def attach_button() -> gr.UploadButton:
    """Lay the paper clip out; its words are for those who cannot see it."""
    return gr.UploadButton("Attach files", file_count="multiple", scale=0, min_width=44, elem_id="attach")


def connect_attaching(
    appliance: Appliance, line: AttachLine, button: gr.UploadButton, collection: gr.Dropdown
) -> gr.events.Dependency:
    """Connect both; returns the event after which documents may have come in."""

    def attach(files: list[str] | None, chosen: str | None, held: Attached) -> Iterator[tuple[Any, ...]]:
        arrived = [Path(file) for file in files or ()]
        yield gr.update(value=None, interactive=False), gr.skip(), gr.skip(), gr.skip()
        for told, attached in follow_attach(appliance, arrived, chosen or "default", held):
            yield gr.skip(), *shown(attached, told)

    def ready_again() -> Any:
        return gr.update(interactive=True)

    attaching = button.upload(
        attach,
        [button, collection, line.held],
        [button, *line.outputs()],
        **{**_QUIET, "concurrency_limit": 2},
    )
    line.detach.click(lambda: shown((), ""), None, line.outputs(), **_QUIET)
    # A document of one collection cannot be asked about in another.
    collection.change(lambda: shown((), ""), None, line.outputs(), **_QUIET)
    finished: gr.events.Dependency = attaching.then(ready_again, None, button, **_QUIET)
    return finished


def shown(attached: Attached, told: str) -> tuple[Any, Any, str]:
    """Values for `AttachLine.outputs`."""
    return attached, gr.update(visible=bool(told)), told


def still_shown(held: Attached) -> tuple[Any, str]:
    """Values for frame and text after an answer: what it was about, and no longer why other files were not."""
    told = line_html(held)
    return gr.update(visible=bool(told)), told


def only_what_is_there(appliance: Appliance, held: Attached, chosen: str | None) -> tuple[Any, ...]:
    """Values for `AttachLine.outputs` after documents may have gone; the line stays as it is where none did."""
    kept = still_there(appliance, held, chosen or "default")
    return (gr.skip(), gr.skip(), gr.skip()) if kept == held else shown(kept, line_html(kept))
