"""A stand-in with the facade's shape and no model: documents are words in memory, answers come word by word."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from appliance.errors import NoDocuments, UnknownDocument
from appliance.service import (
    Answer,
    AnswerEvent,
    AnswerFinished,
    AnswerStarted,
    AnswerText,
    Appliance,
    DocumentEntry,
    DocumentSummary,
    IngestProgress,
    IngestReport,
    Source,
)
from storage.home import Home

ANSWER = (
    "New employees have **28 days** of paid leave a year. Five unused days may be carried over until the end of March."
)


@dataclass
class FakeAppliance:
    """`word_s` is the pause between two words; `calls` counts every call that changes or asks something."""

    home: Home
    reply: str = ANSWER
    word_s: float = 0.0
    calls: list[str] = field(default_factory=list)
    stored: dict[str, DocumentSummary] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    words_given: int = 0
    asked_about: list[tuple[str, ...]] = field(default_factory=list)

    def as_appliance(self) -> Appliance:
        return cast(Appliance, self)

    def collections(self) -> list[str]:
        return sorted({document.collection for document in self.stored.values()})

    def documents(self, collection: str | None = None) -> list[DocumentSummary]:
        return [entry for entry in self.stored.values() if collection in (None, entry.collection)]

    def add(self, title: str, text: str, collection: str = "default", path: str = "", kind: str = "txt") -> str:
        """Store a document of four chunks; returns its id."""
        identifier = f"d{len(self.stored)}"
        self.texts[identifier] = text
        self.stored[identifier] = DocumentSummary(
            id=identifier,
            title=title,
            path=path or f"/somewhere/{title}",
            collection=collection,
            kind=kind,
            pages=3 if kind == "pdf" else 0,
            chunks=4,
            chunks_with_kv=4,
            kv_bytes=3_400_000,
            size_bytes=len(text),
        )
        return identifier

    def ingest(
        self,
        paths: Sequence[Path],
        collection: str = "default",
        kv: str = "now",
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        self.calls.append("ingest")
        return self._read(paths, collection, progress)

    def _read(
        self, paths: Sequence[Path], collection: str, progress: Callable[[IngestProgress], None] | None
    ) -> IngestReport:
        entries = []
        for index, path in enumerate(paths):
            text = path.read_text(errors="replace")
            for step in range(1, 5):
                time.sleep(self.word_s)
                if progress is not None:
                    progress(IngestProgress("kv", path.name, index, len(paths), step, 4, 2.5, 1.5))
            if "%ENCRYPTED" in text:
                reason = f"{path.name} is encrypted: remove the password and ingest it again"
                entries.append(DocumentEntry(str(path), "failed", 0, reason))
                continue
            known = next((found for found, held in self.texts.items() if held == text and found in self.stored), None)
            if known is None:
                known = self.add(path.stem, text, collection, str(path), path.suffix.lstrip("."))
                entries.append(DocumentEntry(str(path), "ready", 4, id=known))
            else:
                entries.append(DocumentEntry(str(path), "unchanged", 4, id=known))
        done = sum(1 for entry in entries if entry.error is None)
        return IngestReport(tuple(entries), chunks=4 * done, kv_bytes=3_400_000 * done, seconds=0.4)

    def attach(
        self,
        paths: Sequence[Path],
        collection: str = "default",
        progress: Callable[[IngestProgress], None] | None = None,
    ) -> IngestReport:
        self.calls.append("attach")
        return self._read(paths, collection, progress)

    def ask(
        self,
        question: str,
        collection: str = "default",
        strategy: str = "auto",
        top_k: int = 4,
        max_new_tokens: int = 128,
        stop: threading.Event | None = None,
        documents: Sequence[str] = (),
    ) -> Iterator[AnswerEvent]:
        self.asked_about.append(tuple(documents))
        self.calls.append("ask")
        if not self.stored:
            raise NoDocuments("no documents yet: run `appliance ingest FOLDER` first")
        unknown = [document for document in documents if document not in self.stored]
        if unknown:
            raise UnknownDocument(f"the collection holds no document {unknown[0]!r} to ask about: attach it again")
        first = [self.stored[document] for document in documents]
        chosen = [*first, *(entry for entry in self.stored.values() if entry not in first)][:top_k]
        sources = tuple(
            Source(entry.title, 3 if entry.kind == "pdf" else None, 0, 10, self.texts[entry.id], 0.0328 / (rank + 1))
            for rank, entry in enumerate(chosen)
        )
        yield AnswerStarted(sources, 1690, "reuse")
        words = self.reply.split(" ")
        said = ""
        for index, word in enumerate(words):
            if stop is not None and stop.is_set():
                break
            time.sleep(self.word_s)
            piece = word if index == 0 else f" {word}"
            said += piece
            self.words_given = index + 1
            yield AnswerText(piece)
        yield AnswerFinished(
            Answer(
                question=question,
                answer=said,
                sources=sources,
                strategy="reuse",
                tokens={"prompt": 1690, "reused": 1612, "computed": 78, "generated": len(words)},
                timing={"retrieve": 12.4, "load": 9.1, "place": 4.0, "compute": 51.2, "ttft": 78.0, "total": 1420.0},
                tiers={"gpu": 0, "pinned": 0, "pageable": 0, "disk": len(sources), "computed": 0},
                warnings=(),
            )
        )

    def remove(self, document_id: str) -> None:
        self.calls.append("remove")
        if document_id not in self.stored:
            raise UnknownDocument(f"no document {document_id}: it was removed before")
        del self.stored[document_id]

    def status(self) -> dict[str, object]:
        return {"documents": len(self.stored)}

    def describe(self) -> dict[str, str]:
        return {
            "model": "SmolLM2-135M-Instruct",
            "device": "cpu",
            "note": "the built-in model is small: it can be wrong, so check the sources",
        }
