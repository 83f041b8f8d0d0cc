"""The corpus of a run: every passage of its data, and the neighbours each is read behind."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from appliance.benches.base import Progress
from appliance.benches.sentence_questions import CutDocument
from appliance.neighbours import CHOOSERS, Place
from appliance.retrieval import text_to_embed
from models.embedding import Embedding
from models.prompt import PromptTemplate

ORACLE = "prompt"
LARGEST_CORPUS = 2000
"""Passages that are embedded at most: those of the questions first, then others, evenly spread."""
_EMBEDDED_AT_ONCE = 32


@dataclass(frozen=True)
class Passages:
    """Passages by number, each text once. `ids`: int32 `[tokens]` as in a prompt; `document` and `ordinal`: its place.

    `windows` `[windows, dimensions]`, those of passage `n` at `[begins[n], begins[n + 1])`.
    """

    ids: tuple[np.ndarray, ...]
    document: tuple[int, ...]
    ordinal: tuple[int, ...]
    windows: NDArray[np.float32] = field(repr=False)
    begins: NDArray[np.int64] = field(repr=False)
    of_documents: int = 0
    """How many passages the data hold, those left out among them."""

    def numbers(self) -> Mapping[bytes, int]:
        """The number of each passage by the bytes of its ids."""
        return {ids.tobytes(): number for number, ids in enumerate(self.ids)}

    def similar(self, number: int) -> list[int]:
        """All other passages by falling cosine of their best pair of windows; ties: the earlier."""
        own = self.windows[self.begins[number] : self.begins[number + 1]]
        cosines = np.maximum.reduceat((own @ self.windows.T).max(axis=0), self.begins[:-1])
        return [int(other) for other in np.argsort(-cosines, kind="stable") if other != number]

    def places(self) -> list[Place]:
        """Each passage among the others, as the product's choosers want them; its number is its chunk's id."""
        where = zip(self.document, self.ordinal, self.ids, strict=True)
        return [
            Place(number, str(document), ordinal, "", len(ids)) for number, (document, ordinal, ids) in enumerate(where)
        ]


class Neighbours:
    """The neighbours of a passage by the product's own choosers: the same whatever the question.

    But for the oracle `prompt`, the question's own other chunks, which no product can have beforehand; `none` has none.
    """

    def __init__(self, passages: Passages, chooser: str, most: int, most_tokens: int) -> None:
        self._passages = passages
        self._oracle = chooser == ORACLE
        self._chooser = CHOOSERS[chooser]() if chooser in CHOOSERS else None
        self._places = passages.places()
        self._documents: dict[str, list[Place]] = defaultdict(list)
        for place in self._places:
            self._documents[place.document_id].append(place)
        self._most, self._most_tokens = most, most_tokens
        self._numbers = passages.numbers()
        self._known: dict[int, tuple[np.ndarray, ...]] = {}

    def of(self, ids: np.ndarray, prompt: Sequence[np.ndarray], room_tokens: int) -> tuple[np.ndarray, ...]:
        """Ids of the neighbours, the first placed first; () for what is not in the corpus (a passage that was cut)."""
        if self._oracle:
            return self._fitting(ids, [other for other in reversed(prompt) if other is not ids], room_tokens)
        number = self._numbers.get(ids.tobytes())
        if number is None or self._chooser is None:
            return ()
        if number not in self._known:
            place = self._places[number]
            similar = self._passages.similar(number)
            order = self._chooser.order(place, similar, self._documents[place.document_id])
            others = [self._passages.ids[other] for other in dict.fromkeys(order)]
            self._known[number] = self._fitting(ids, others, room_tokens)
        return self._known[number]

    def _fitting(self, ids: np.ndarray, order: Sequence[np.ndarray], room_tokens: int) -> tuple[np.ndarray, ...]:
        """The first that fit, the most wanted last, as the product places them; the least similar are left out."""
        left, chosen = min(self._most_tokens, room_tokens), list[np.ndarray]()
        for other in order[: self._most]:
            left -= len(other)
            if left < 0:
                break
            if not np.array_equal(other, ids):
                chosen.append(other)
        return tuple(reversed(chosen))


def embed_passages(
    documents: Sequence[CutDocument],
    wanted: Sequence[np.ndarray],
    template: PromptTemplate,
    embedding: Embedding,
    progress: Progress,
    most: int = LARGEST_CORPUS,
) -> Passages:
    """The corpus of these documents; `wanted` (ids of the questions' passages) are in it before any other."""
    found: dict[bytes, tuple[np.ndarray, int, int, str]] = {}
    for document, cut in enumerate(documents):
        for ordinal, text in enumerate(cut.chunks):
            ids = template.chunk(cut.title, text)
            found.setdefault(ids.tobytes(), (ids, document, ordinal, text_to_embed(cut.title, text)))
    kept = _sample(list(found), [ids.tobytes() for ids in wanted], most)
    entries = [found[key] for key in kept]
    vectors: list[NDArray[np.float32]] = []
    for first in range(0, len(entries), _EMBEDDED_AT_ONCE):
        progress("embedding passages", first, len(entries))
        vectors += embedding.embed_windows([text for _, _, _, text in entries[first : first + _EMBEDDED_AT_ONCE]])
    return Passages(
        ids=tuple(entry[0] for entry in entries),
        document=tuple(entry[1] for entry in entries),
        ordinal=tuple(entry[2] for entry in entries),
        windows=np.concatenate(vectors) if vectors else np.zeros((0, embedding.dimensions), dtype=np.float32),
        begins=np.cumsum([0, *map(len, vectors)]).astype(np.int64),
        of_documents=len(found),
    )


def _sample(keys: Sequence[bytes], wanted: Sequence[bytes], most: int) -> list[bytes]:
    """At most so many, in the order of the documents; the wanted ones are never left out."""
    first = set(wanted) & set(keys)
    others = [key for key in keys if key not in first]
    room = max(0, most - len(first))
    if len(others) > room:
        others = [others[int(place * len(others) / room)] for place in range(room)]
    chosen = first | set(others)
    return [key for key in keys if key in chosen]
