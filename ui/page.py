"""The one page: masthead, chat, documents, footer."""

from functools import partial
from typing import Any

import gradio as gr

from appliance.service import Appliance
from ui.answering import StopSwitches
from ui.chat import chat_page, chat_state
from ui.documents import documents_page
from ui.render import plain

_MASTHEAD = (
    '<div class="brand"><span class="mark">≡</span>Appliance'
    '<span class="claim">answers from your documents</span>'
    '<span class="local">on this computer only</span></div>'
)
_QUIET: dict[str, Any] = {"show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None}


def build_page(appliance: Appliance, switches: StopSwitches) -> gr.Blocks:
    """All components and events. Holds no text of the user: every browser fetches that after loading."""
    page: gr.Blocks
    with gr.Blocks(title="Appliance", analytics_enabled=False, delete_cache=(3600, 86400), fill_width=True) as page:
        gr.Markdown(_MASTHEAD, elem_id="masthead")
        with gr.Tabs(selected="chat", elem_id="tabs") as tabs:
            with gr.Tab("Chat", id="chat", render_children=True):
                chat = chat_page(appliance, switches)
            with gr.Tab("Documents", id="documents", render_children=True) as documents_tab:
                refresh = partial(chat_state, appliance)
                inputs, outputs = [chat.collection, chat.attached.held], chat.outputs()

                def refresh_chat(after: gr.events.Dependency) -> None:
                    after.then(refresh, inputs, outputs, **_QUIET)

                refresh_chat(chat.attaching)

                refresh_list_on = documents_page(appliance, refresh_chat)
        colophon = gr.Markdown(elem_id="colophon")

        page.load(refresh, inputs, outputs, **_QUIET)
        page.load(lambda: _colophon(appliance), None, colophon, **_QUIET)
        refresh_list_on(page.load)
        refresh_list_on(documents_tab.select)
        chat.add_documents.click(lambda: gr.update(selected="documents"), None, tabs, **_QUIET)

        def leave(request: gr.Request) -> None:
            switches.stop(request.session_hash or "")

        page.unload(leave)
    page.queue(max_size=64, api_open=False)
    page.has_launched = True  # Gradio checks the paths of files only then, and mounting does not set it
    return page


def _colophon(appliance: Appliance) -> str:
    return f"<p>{' · '.join(plain(value) for value in appliance.describe().values() if value)}</p>"
