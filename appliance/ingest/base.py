"""What ingesting tells: progress while it runs, a report when it is done."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

STATES = ("ready", "unchanged", "removed", "skipped", "failed")


@dataclass(frozen=True)
class IngestProgress:
    """`stage` is `parse`, `embed` or `kv`. Counts are documents of this run, and chunks of this run's KV work."""

    stage: str
    document: str
    done: int
    total: int
    chunks_done: int
    chunks_total: int
    rate_per_s: float
    left_s: float | None


ProgressListener = Callable[[IngestProgress], None]


@dataclass(frozen=True)
class DocumentEntry:
    """One file: `state` is `ready` (read now), `unchanged`, `removed` (its file is gone), `skipped` or `failed`.

    `error` is one line with the reason and the mend; `notes` say what of a document that went in was left out. `id` is
    the document's where it is in the collection now.
    """

    path: str
    state: str
    chunks: int
    error: str | None = None
    notes: tuple[str, ...] = ()
    id: str | None = None

    def as_json(self) -> dict[str, Any]:
        return {**self.__dict__, "notes": list(self.notes)}


_NOTES = {
    "hidden_text": "text that a reader would not see was left out",
    "pages_without_text": "pages that hold only pictures were left out",
}


def notes_of(flags: Iterable[str]) -> tuple[str, ...]:
    """A document's flags in words."""
    return tuple(_NOTES.get(flag, flag) for flag in flags)


@dataclass(frozen=True)
class IngestReport:
    """`chunks` and `kv_bytes` are what this run added; `kv_tokens` is what the language model read.

    `model_seconds` is the time of reading and encoding blocks and of embedding, cutting its windows included.
    `chunks_without_room` have no KV because the disk budget is spent: they are searchable and computed on demand.
    """

    documents: tuple[DocumentEntry, ...]
    chunks: int
    kv_bytes: int
    seconds: float
    kv_tokens: int = 0
    model_seconds: float = 0.0
    error: str | None = None
    chunks_without_room: int = 0

    @property
    def failed(self) -> bool:
        """Whether any file could not go in, or the run had to end early."""
        return self.error is not None or any(entry.state == "failed" for entry in self.documents)

    @property
    def document_ids(self) -> tuple[str, ...]:
        """The ids of the documents that are there now, read or unchanged, each once."""
        return tuple(dict.fromkeys(entry.id for entry in self.documents if entry.id is not None))

    def as_json(self) -> dict[str, Any]:
        """The object that `ingest --json` prints."""
        return {
            "documents": [entry.as_json() for entry in self.documents],
            "chunks": self.chunks,
            "kv_bytes": self.kv_bytes,
            "kv_tokens": self.kv_tokens,
            "seconds": round(self.seconds, 3),
            "model_seconds": round(self.model_seconds, 3),
            "chunks_without_room": self.chunks_without_room,
            "error": self.error,
        }


@dataclass(frozen=True)
class IngestEstimate:
    """What `--dry-run` says before any work: tokens, bytes on disk, hours of the model, at the rate measured here.

    `chunks` are those of new documents; tokens, bytes and hours also count what older ones lack for this model.
    """

    documents: tuple[DocumentEntry, ...]
    chunks: int
    kv_tokens: int
    kv_bytes: int
    hours: float
    tokens_per_s: float

    @property
    def failed(self) -> bool:
        return any(entry.state == "failed" for entry in self.documents)

    def as_json(self) -> dict[str, Any]:
        """The object that `ingest --dry-run --json` prints."""
        return {
            "dry_run": True,
            "documents": [entry.as_json() for entry in self.documents],
            "chunks": self.chunks,
            "kv_tokens": self.kv_tokens,
            "kv_bytes": self.kv_bytes,
            "hours": round(self.hours, 4),
            "tokens_per_s": round(self.tokens_per_s, 1),
        }
