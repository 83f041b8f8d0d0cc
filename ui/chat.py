"""The chat: a question, the answer as it comes, and beside it the sources and the measured facts."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gradio as gr

from appliance.service import Appliance
from ui.answering import Message, StopSwitches, follow_answer, spoken
from ui.attach_line import (
    AttachLine,
    attach_button,
    attach_line,
    connect_attaching,
    only_what_is_there,
    still_shown,
)
from ui.attaching import Attached
from ui.render import count

_STRATEGIES = [
    ("Automatic", "auto"),
    ("Reuse what was read", "reuse"),
    ("Read again in full", "full"),
    ("Reuse, reread what matters here", "fusion"),
    ("Reuse, reread what differs", "blend"),
    ("Reuse, reread what leans on others", "craft"),
    ("Reuse, reread each beginning", "epic"),
]
_NO_SOURCES = "The passages an answer rests on appear here, best first."
_EMPTY = """### Begin with your documents

Add a few files. Each one is read once; from then on answers start almost at once and name the passages they rest on."""
_READY = """### Ask your documents

{documents} ready to be asked. Every answer names the passages it rests on."""


@dataclass(frozen=True)
class ChatPage:
    """The components that other parts of the page update."""

    conversation: gr.Chatbot
    collection: gr.Dropdown
    add_documents: gr.Button
    attached: AttachLine
    attaching: gr.events.Dependency
    """After it documents may have come in."""

    def outputs(self) -> list[Any]:
        """What `chat_state` gives values for."""
        return [self.conversation, self.collection, self.add_documents, *self.attached.outputs()]


def chat_page(appliance: Appliance, switches: StopSwitches) -> ChatPage:
    """Lay the chat out in the current `gr.Blocks` and connect it."""
    with gr.Row(elem_id="chat"):
        with gr.Column(scale=5, min_width=320):
            conversation = _conversation()
            add_documents = gr.Button("Add documents", variant="primary", visible=False, elem_id="add-documents")
            attached = attach_line()
            with gr.Row(elem_id="ask"):
                attach = attach_button()
                question = _question()
        with gr.Column(scale=3, min_width=300, elem_id="evidence"):
            collection, strategy = _choices()
            facts = gr.Markdown(elem_id="facts", latex_delimiters=[], visible=False)
            gr.Markdown("### Sources")
            cards = gr.Markdown(_NO_SOURCES, elem_id="sources", elem_classes="quiet", latex_delimiters=[])

    def answer(
        text: str | None, history: list[Message], chosen: str | None, how: str, held: Attached, request: gr.Request
    ) -> Iterator[tuple[Any, ...]]:
        asked = (text or "").strip()
        if not asked:
            yield gr.skip(), gr.skip(), gr.skip(), gr.skip()
            return
        busy = gr.update(value="", submit_btn=False, stop_btn=True)
        stop = switches.begin(request.session_hash or "")
        about = [document.id for document in held]
        for turn in follow_answer(appliance, asked, chosen or "default", how, spoken(history), stop, about):
            shown = gr.update(value=turn.facts, visible=bool(turn.facts))
            yield list(turn.messages), busy, shown, turn.cards or _NO_SOURCES
            busy = gr.skip()

    def stop_answer(request: gr.Request) -> None:
        switches.stop(request.session_hash or "")

    asking = question.submit(
        answer,
        [question, conversation, collection, strategy, attached.held],
        [conversation, question, facts, cards],
        show_progress="hidden",
        api_visibility="private",
        concurrency_limit=8,  # the application answers a few at once; the others show that they wait
    )
    asking.then(
        lambda held: (_ready_again(), *still_shown(held)),
        attached.held,
        [question, attached.frame, attached.text],
        show_progress="hidden",
        api_visibility="private",
        concurrency_limit=None,
    )
    question.stop(stop_answer, show_progress="hidden", api_visibility="private", concurrency_limit=None)
    attaching = connect_attaching(appliance, attached, attach, collection)
    return ChatPage(conversation, collection, add_documents, attached, attaching)


def _choices() -> tuple[gr.Dropdown, gr.Dropdown]:
    """Collection and strategy."""
    with gr.Row(elem_id="choices"):
        collection = gr.Dropdown(
            ["default"],
            value="default",
            label="Collection",
            allow_custom_value=True,  # an open page outlives the server that told it the choices
            min_width=120,
            elem_id="collection",
        )
        strategy = gr.Dropdown(_STRATEGIES, value="auto", label="Strategy", filterable=False, min_width=120)
    return collection, strategy


def _conversation() -> Any:
    """The messages; text of models and documents is shown as sanitised Markdown."""
    return gr.Chatbot(
        elem_id="conversation",
        show_label=False,
        container=False,
        height="max(300px, calc(100dvh - 262px))",
        placeholder=_EMPTY,
        buttons=["copy"],
        feedback_options=None,
        sanitize_html=True,
        allow_tags=False,
        latex_delimiters=[],
        allow_file_downloads=False,
        layout="bubble",
    )


def _question() -> Any:
    """The box below, with its send and stop button."""
    return gr.Textbox(
        elem_id="question",
        label="Question",
        show_label=False,
        container=False,
        placeholder="Ask your documents",
        submit_btn=True,
        autofocus=True,
        max_lines=6,
        max_length=4000,
    )


def _ready_again() -> Any:
    return gr.update(submit_btn=True, stop_btn=False)


def chat_state(appliance: Appliance, chosen: str | None, held: Attached) -> tuple[Any, ...]:
    """Values for `ChatPage.outputs` from what is stored now; of the conversation, its empty state.

    `chosen` is the collection picked before; it stays picked while it exists.
    """
    documents = len(appliance.documents())
    names = appliance.collections()
    placeholder = _READY.format(documents=count(documents, "document")) if documents else _EMPTY
    if chosen not in names:
        chosen = "default" if "default" in names or not names else names[0]
    return (
        gr.update(placeholder=placeholder),
        gr.update(choices=names or ["default"], value=chosen),
        gr.update(visible=not documents),
        *only_what_is_there(appliance, held, chosen),
    )
