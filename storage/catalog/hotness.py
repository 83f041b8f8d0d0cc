"""How hot chunks are: how often each was part of a question's prompt, with older questions counting less.

A score halves with every `half_life_questions` questions asked, whatever they were about. Questions are the clock, not
the time of day: a computer that was off forgets nothing. What was asked about is as secret as the documents, and a
chunk's hotness goes with the chunk.
"""

# ruff: noqa: S608 - only our own column names, conditions and question marks are put into statements

import heapq
import math
import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from storage.catalog.attending import NOT_NEAR
from storage.catalog.base import HotChunk, RankedBlock
from storage.catalog.section import Section, in_groups, marks
from storage.contexts import is_near

QUESTIONS_COUNTER = "questions"
HALF_LIFE_QUESTIONS = 1000
_READY_CHUNK = "JOIN documents ON documents.id = chunks.document_id AND documents.state = 'ready'"


class Hotness(Section):
    """The part of the catalog that knows what is asked for."""

    half_life_questions: float = HALF_LIFE_QUESTIONS
    """May be set after opening; what is stored keeps its meaning (a score, and the question it was true at)."""

    def record_uses(self, uses: Sequence[Sequence[int]]) -> None:
        """Count questions, each as the chunk ids it used, oldest first; all of them or none.

        A chunk counts once a question; chunks that were deleted meanwhile are passed over.
        """
        if not uses:
            return
        with self._connection.write() as sqlite:
            before = _questions(sqlite)
            found = _stored(sqlite, {chunk_id for used in uses for chunk_id in used})
            for question, used in enumerate(uses, before + 1):
                for chunk_id in dict.fromkeys(used):
                    score, at, count = found.get(chunk_id, (0.0, question, 0))
                    found[chunk_id] = (self._decayed(score, at, question) + 1, question, count + 1)
            sqlite.executemany(
                "INSERT INTO hotness (chunk_id, score, at_question, uses) SELECT chunks.id, ?2, ?3, ?4 FROM chunks"
                f" {_READY_CHUNK} WHERE chunks.id = ?1 ON CONFLICT (chunk_id) DO UPDATE SET"
                " score = excluded.score, at_question = excluded.at_question, uses = excluded.uses",
                [(chunk_id, *entry) for chunk_id, entry in found.items()],
            )
            sqlite.execute(
                "INSERT INTO counters (event, amount) VALUES (?, ?)"
                " ON CONFLICT (event) DO UPDATE SET amount = excluded.amount",
                (QUESTIONS_COUNTER, before + len(uses)),
            )

    def questions(self) -> int:
        """How many questions were counted so far."""
        with self._connection.read() as sqlite:
            return _questions(sqlite)

    def chunk_scores(self, chunk_ids: Sequence[int]) -> dict[int, float]:
        """The scores of these chunks now; those nobody asked for are left out."""
        with self._connection.read() as sqlite:
            now = _questions(sqlite)
            stored = _stored(sqlite, chunk_ids) if _is_there(sqlite) else {}
        return {chunk_id: self._decayed(score, at, now) for chunk_id, (score, at, _) in stored.items()}

    def hottest(self, limit: int, fingerprint: str | None = None) -> list[HotChunk]:
        """The hottest chunks of ready documents, hottest first, ties by the lowest id.

        Codec, generation and size are those of the chunk's block of this model (any, where none is named).
        """
        with self._connection.read() as sqlite:
            if not _is_there(sqlite):
                return []
            now = _questions(sqlite)
            rows = sqlite.execute(
                "SELECT hotness.chunk_id, score, at_question, uses FROM hotness"
                f" JOIN chunks ON chunks.id = hotness.chunk_id {_READY_CHUNK}"
            )
            scored = ((self._decayed(score, at, now), -chunk_id, uses) for chunk_id, score, at, uses in rows)
            best = heapq.nlargest(limit, scored)
            described = _described(sqlite, [-negative for _, negative, _ in best], fingerprint)
        return [
            HotChunk(*(-negative, *described[-negative], score, uses))
            for score, negative, uses in best
            if -negative in described  # its document may be deleted between the two looks
        ]

    def ranked_blocks(
        self, fingerprint: str | None = None, kind: str | None = None, context: str | None = None
    ) -> list[RankedBlock]:
        """The ready blocks that any chunk uses, hottest first, ties by the lowest chunk id; None: of any.

        A block's score is the sum over the chunks that use it. Of the same score, blocks that attended to neighbours
        come after all others.
        """
        with self._connection.read() as sqlite:
            heat: dict[int, float] = {}
            if _is_there(sqlite):
                now = _questions(sqlite)
                rows = sqlite.execute("SELECT chunk_id, score, at_question FROM hotness")
                heat = {chunk_id: self._decayed(score, at, now) for chunk_id, score, at in rows}
            users: dict[str, list[int]] = {}
            for key, chunk_id in sqlite.execute("SELECT block_key, chunk_id FROM block_chunks ORDER BY 1, 2"):
                users.setdefault(key, []).append(chunk_id)
            blocks = sqlite.execute(
                "SELECT key, size_bytes, codec, generation, tokens, collection_id, fingerprint, context FROM blocks"
                " WHERE state = 'ready' AND (?1 IS NULL OR fingerprint = ?1) AND (?2 IS NULL OR kind = ?2)"
                " AND (?3 IS NULL OR context = ?3)",
                (fingerprint, kind, context),
            ).fetchall()
        ranked = [
            RankedBlock(*(*row[:8], tuple(users[row[0]]), sum(heat.get(chunk_id, 0.0) for chunk_id in users[row[0]])))
            for row in blocks
            if row[0] in users
        ]
        # Of two blocks as hot, what can be done without is last.
        ranked.sort(key=lambda block: (-block.score, is_near(block.context), block.chunk_ids[0], block.key))
        return ranked

    def refuse_codec(self, key: str, codec: str) -> bool:
        """Note that this block's numbers do not fit this codec, for as long as the block is here.

        False where that was known already, or the block is gone.
        """
        with self._connection.write() as sqlite:
            noted = sqlite.execute(
                "INSERT INTO refused_codecs (block_key, codec) SELECT key, ?2 FROM blocks WHERE key = ?1"
                " ON CONFLICT DO NOTHING",
                (key, codec),
            )
            return noted.rowcount == 1

    def refused_codecs(self) -> set[tuple[str, str]]:
        """Every (block key, codec) that does not fit."""
        with self._connection.read() as sqlite:
            if not _is_there(sqlite):
                return set()
            return {(str(key), str(codec)) for key, codec in sqlite.execute("SELECT * FROM refused_codecs")}

    def _decayed(self, score: float, at_question: int, now: int) -> float:
        return score * math.pow(2.0, (at_question - now) / self.half_life_questions)


def _is_there(sqlite: sqlite3.Connection) -> bool:
    """A reader may find the catalog of an older version, which nobody wrote to since; nothing was asked there."""
    return sqlite.execute("SELECT 1 FROM sqlite_master WHERE name = 'hotness'").fetchone() is not None


def _questions(sqlite: sqlite3.Connection) -> int:
    row = sqlite.execute("SELECT amount FROM counters WHERE event = ?", (QUESTIONS_COUNTER,)).fetchone()
    return 0 if row is None else int(row[0])


def _stored(sqlite: sqlite3.Connection, chunk_ids: Iterable[int]) -> dict[int, tuple[float, int, int]]:
    """Score, the question it was true at, and uses, by chunk."""
    found: dict[int, tuple[float, int, int]] = {}
    for group in in_groups(chunk_ids):
        rows = sqlite.execute(
            f"SELECT chunk_id, score, at_question, uses FROM hotness WHERE chunk_id IN ({marks(group)})", group
        )
        found |= {chunk_id: (score, at, uses) for chunk_id, score, at, uses in rows}
    return found


def _described(
    sqlite: sqlite3.Connection, chunk_ids: Sequence[int], fingerprint: str | None
) -> dict[int, tuple[Any, ...]]:
    """Document id, title, ordinal, page, and codec, generation and size of the newest such block (or None)."""
    found: dict[int, tuple[Any, ...]] = {}
    for group in in_groups(chunk_ids):
        rows = sqlite.execute(
            "SELECT chunks.id, documents.id, documents.title, chunks.ordinal, chunks.page, blocks.codec,"
            f" blocks.generation, blocks.size_bytes FROM chunks {_READY_CHUNK}"
            " LEFT JOIN block_chunks ON block_chunks.chunk_id = chunks.id LEFT JOIN blocks"
            f" ON blocks.key = block_chunks.block_key AND blocks.state = 'ready' AND {NOT_NEAR}"
            f" AND (? IS NULL OR blocks.fingerprint = ?) WHERE chunks.id IN ({marks(group)})"
            " ORDER BY blocks.generation",  # none is NULL and comes first, so a block wins over none
            (fingerprint, fingerprint, *group),
        )
        found |= {row[0]: row[1:] for row in rows}
    return found
