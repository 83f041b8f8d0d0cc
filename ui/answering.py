"""Follows one answer from the question to its last word, as a row of pictures of the chat page."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from appliance.errors import ApplianceError, NoDocuments
from appliance.service import (
    Answer,
    AnswerEvent,
    AnswerFinished,
    AnswerStarted,
    AnswerText,
    Appliance,
    Source,
)
from appliance.stopping import Stop
from ui.background import in_background
from ui.render import count, defuse, duration, escape_markdown, facts_html, sources_html, sources_line

Message = dict[str, Any]  # Gradio's: {"role": "user" | "assistant", "content": text}


@dataclass(frozen=True)
class Turn:
    """The chat page at one moment: the conversation, the cards of the sources, the measured facts."""

    messages: tuple[Message, ...]
    cards: str
    facts: str


@dataclass(frozen=True)
class _Progress:
    waiting: str = "Searching your documents"
    text: str = ""
    sources: tuple[Source, ...] = ()
    answer: Answer | None = None
    failure: str = ""


class StopSwitches:
    """One stop event for each browser session that has an answer under way. Safe to use from any thread."""

    def __init__(self) -> None:
        self._events: dict[str, Stop] = {}
        self._lock = threading.Lock()

    def begin(self, session: str) -> Stop:
        """A fresh event for this session's next answer; an older answer of the same session is stopped."""
        with self._lock:
            self._set(session)
            return self._events.setdefault(session, Stop())

    def stop(self, session: str) -> None:
        with self._lock:
            self._set(session)

    def stop_all(self) -> None:
        with self._lock:
            for session in list(self._events):
                self._set(session)

    def _set(self, session: str) -> None:
        event = self._events.pop(session, None)
        if event is not None:
            event.set()


def spoken(history: Any) -> list[Message]:
    """The conversation as the browser sent it, reduced to who said which text: a message could also name a file."""
    messages: list[Message] = []
    for entry in history if isinstance(history, list) else ():
        role, content = entry.get("role"), entry.get("content")
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        texts = [part["text"] for part in parts or () if part.get("type") == "text"]
        if role in ("user", "assistant") and texts:
            messages.append({"role": role, "content": "\n\n".join(texts)})
    return messages


def follow_answer(
    appliance: Appliance,
    question: str,
    collection: str,
    strategy: str,
    history: Sequence[Message],
    stop: threading.Event,
    documents: Sequence[str] = (),
) -> Iterator[Turn]:
    """Ask, and yield the page each time it changes. Errors of the application become one line in the conversation.

    `documents` are ids of those that the question is about. `stop` ends the answer: a `Stop` at once, wherever it is,
    another event at the next token. It is also set when the reader goes away.
    """
    begun = (*history, {"role": "user", "content": defuse(question)})
    started_s = time.monotonic()

    def work(emit: Callable[[AnswerEvent], None]) -> None:
        asked = appliance.ask(question, collection=collection, strategy=strategy, stop=stop, documents=documents)
        for event in asked:
            emit(event)

    progress = _Progress()
    try:
        yield _turn(begun, progress, 0.0, stopped=False)
        for batch in in_background(work):
            for event in batch:
                progress = _advance(progress, event)
            yield _turn(begun, progress, time.monotonic() - started_s, stopped=stop.is_set())
        if progress.answer is None:
            yield _turn(begun, replace(progress, waiting=""), 0.0, stopped=True)
    except NoDocuments:
        yield _turn(
            begun, replace(progress, failure="There are no documents yet: add some under Documents."), 0.0, False
        )
    except ApplianceError as error:
        yield _turn(begun, replace(progress, failure=str(error)), 0.0, stopped=False)
    finally:
        stop.set()


def _advance(progress: _Progress, event: AnswerEvent) -> _Progress:
    if isinstance(event, AnswerStarted):
        verb = "Reading" if event.strategy == "full" else "Loading"
        waiting = f"{verb} {count(len(event.sources), 'passage')}"
        return replace(progress, sources=event.sources, waiting=waiting)
    if isinstance(event, AnswerText):
        return replace(progress, text=progress.text + event.text)
    if isinstance(event, AnswerFinished):
        return replace(progress, answer=event.answer, sources=event.answer.sources, text=event.answer.answer)
    return progress


def _turn(begun: tuple[Message, ...], progress: _Progress, waited_s: float, stopped: bool) -> Turn:
    facts = "" if progress.answer is None else facts_html(progress.answer)
    return Turn((*begun, *_reply(progress, waited_s, stopped)), sources_html(progress.sources), facts)


def _reply(progress: _Progress, waited_s: float, stopped: bool) -> list[Message]:
    """The assistant's messages: the text so far, and under a finished one what it rests on."""
    if progress.failure:
        return [{"role": "assistant", "content": f"**That did not work.** {escape_markdown(progress.failure)}"}]
    reply: list[Message] = []
    if progress.text:
        reply.append({"role": "assistant", "content": defuse(progress.text)})
    elif progress.answer is None and progress.waiting:
        since = f" · {duration(waited_s)}" if waited_s >= 1 else ""
        reply.append({"role": "assistant", "content": f"*{progress.waiting} …{since}*"})
    if progress.answer is not None or not progress.waiting:
        note = "Stopped. " if stopped else ""
        line = sources_line(progress.sources) if progress.sources else ""
        first = "" if progress.answer is None else _first_token(progress.answer)
        told = f"{note}{line}{first}".strip() or "Nothing was found."
        reply.append({"role": "assistant", "content": told})
    return reply


def _first_token(answer: Answer) -> str:
    ttft_ms = answer.timing.get("ttft")
    return "" if ttft_ms is None else f" · first token {duration(ttft_ms / 1000)}"
