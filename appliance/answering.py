"""The life of a question (DESIGN.md §5): retrieve, plan, load and place, compute, stream, settle."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from appliance.answers import Answer, AnswerEvent, AnswerFinished, AnswerStarted, AnswerText, Source
from appliance.block_source import StoredBlocks, WantedBlock, wanted_blocks
from appliance.engine import Engine
from appliance.errors import NoDocuments, QuestionRefused
from appliance.hot_set import HotSet
from appliance.planner import ChunkCost, Decision, Planner
from appliance.retrieval import Hit, Retriever
from models.executor import Execution
from models.generation import TextStream, generate
from models.prompt import Prompt
from models.strategies import Plan, find_strategy, mixed_plan
from storage.catalog import Catalog, CollectionRow
from storage.errors import EmbeddingMismatch
from storage.store import BlockStore

Observer = Callable[[Prompt, Execution], None]


@dataclass(frozen=True)
class Question:
    """One question and how to answer it."""

    text: str
    strategy: str
    top_k: int
    max_new_tokens: int
    arrived_s: float  # time.perf_counter() when it came
    without_kv: bool = False  # as if no chunk had KV (benches)


class Answerer:
    """Answers questions over one catalog with one engine. One question at a time; the caller sees to that."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        store: BlockStore,
        retriever: Retriever,
        observe: Observer | None = None,
        planner: Planner | None = None,
        hot: HotSet | None = None,
        later: Callable[[], None] | None = None,
    ) -> None:
        """`observe` is told of every prompt and what carrying it out gave (benches); without a `planner` `auto` loads.

        `hot` counts the chunks of every answer. `later` is called where chunks lack a block and somebody
        else will compute them; without it they are computed after the answer.
        """
        self._observe = observe
        self._planner = planner
        self._hot = hot
        self._later = later
        self._engine = engine
        self._catalog = catalog
        self._store = store
        self._retriever = retriever

    def answer(
        self, question: Question, collection: CollectionRow, stop: threading.Event | None = None, keep: bool = True
    ) -> Iterator[AnswerEvent]:
        """Events of one answer, the finished answer last. With `keep` the store is repaired and filled afterwards.

        Raises QuestionRefused, NoDocuments, PromptTooLong and what loading raises; a closed stream settles too.
        """
        self._check(question, collection)
        hits, wanted, retrieve_ms = self._retrieve(question, collection)
        prompt = self._prompt(question, wanted)
        sources = _sources(hits, wanted)
        # The prompt has the best chunk last; the source of blocks is indexed in that order.
        ordered = list(reversed(wanted))
        plan, decision = self._plan(question, prompt, ordered)
        yield AnswerStarted(sources, prompt.tokens, plan.strategy)
        source = self._source(collection.name, ordered)
        finished = False  # what is stopped computes nothing more
        try:
            execution = self._engine.executor.execute(prompt, plan, source, question.max_new_tokens)
            if self._observe is not None:
                self._observe(prompt, execution)
            stream = TextStream(self._engine.model.tokenizer)
            ids: list[int] = []
            first_token_s = 0.0
            tokens = generate(self._engine.executor, execution.logits, prompt.tokens, question.max_new_tokens, stop)
            for token in tokens:
                first_token_s = first_token_s or time.perf_counter()
                ids.append(token)
                if piece := stream.push(token):
                    yield AnswerText(piece)
            if piece := stream.finish():
                yield AnswerText(piece)
            # An answer that ends before its first token has none; its time is that of deciding so.
            timing = _timing(question, retrieve_ms, execution, first_token_s or time.perf_counter())
            warnings = source.warnings()
            finished = stop is None or not stop.is_set()
            if decision is not None and self._planner is not None:
                self._planner.observe(decision, execution)
        finally:
            unkept = self._settle(source, wanted, decision if finished else None) if keep else []
        answer = Answer(
            question=question.text,
            answer=stream.text.strip(),
            sources=sources,
            strategy=plan.strategy,
            tokens={
                "prompt": prompt.tokens,
                "reused": execution.tokens_reused,
                "computed": execution.tokens_computed,
                "generated": len(ids),
            },
            timing=timing,
            tiers=execution.tiers,
            warnings=tuple(warnings + unkept),
            answer_ids=tuple(ids),
            plan=_told(plan, decision, execution),
        )
        yield AnswerFinished(answer)

    def _check(self, question: Question, collection: CollectionRow) -> None:
        """Raises QuestionRefused, EmbeddingMismatch, UnknownStrategy."""
        if not question.text.strip():
            raise QuestionRefused("the question is empty: ask something")
        if any("\ud800" <= character <= "\udfff" for character in question.text):
            raise QuestionRefused("the question is not valid Unicode: type it again")
        if collection.embedding_fingerprint != self._engine.embedding.fingerprint:
            raise EmbeddingMismatch(
                f"collection {collection.name!r} was begun with another embedding model: name it with --embedding"
            )
        if question.strategy != "auto":
            find_strategy(question.strategy)

    def _plan(self, question: Question, prompt: Prompt, ordered: list[WantedBlock]) -> tuple[Plan, Decision | None]:
        """What to carry out: the strategy that was named, or for `auto` what the planner decides."""
        if question.strategy != "auto" or self._planner is None:
            return find_strategy("reuse" if question.strategy == "auto" else question.strategy).plan(prompt), None
        costs = [
            ChunkCost(len(wanted.token_ids))
            if wanted.row is None
            else ChunkCost(len(wanted.token_ids), wanted.row.size_bytes, self._store.where(wanted.row))
            for wanted in ordered
        ]
        decision = self._planner.decide(prompt, costs)
        return mixed_plan(prompt, decision.computed, decision.overtake_after_ms), decision

    def _source(self, collection: str, ordered: list[WantedBlock]) -> StoredBlocks:
        parts = (self._engine, self._catalog, self._store, collection, ordered)
        return StoredBlocks(*parts) if self._hot is None else StoredBlocks(*parts, self._hot.room_for)

    def _settle(self, source: StoredBlocks, wanted: list[WantedBlock], decision: Decision | None) -> list[str]:
        """After the answer: note what was used, compute or leave to others what is absent, keep what was computed."""
        if self._hot is not None:
            self._hot.log.note([block.chunk.id for block in wanted])
        absent = decision is not None and (source.damaged or any(block.row is None for block in wanted))
        warnings = source.compute_absent() if absent and self._later is None else []
        warnings += source.settle()
        if absent and self._later is not None:
            self._later()
        return warnings

    def _retrieve(self, question: Question, collection: CollectionRow) -> tuple[list[Hit], list[WantedBlock], float]:
        """Hits best first, their chunks with ids and block rows, and the time since the question arrived."""
        hits = self._retriever.search(collection.id, question.text, question.top_k)
        if not hits:
            raise NoDocuments(f"collection {collection.name!r} holds no documents yet: ingest some first")
        chunks = self._catalog.chunks([hit.chunk_id for hit in hits])
        known = {chunk.id for chunk in chunks}
        hits = [hit for hit in hits if hit.chunk_id in known]
        wanted = wanted_blocks(self._engine, self._catalog, collection.name, chunks)
        if question.without_kv:
            wanted = [replace(block, row=None) for block in wanted]
        return hits, wanted, (time.perf_counter() - question.arrived_s) * 1e3

    def _prompt(self, question: Question, wanted: list[WantedBlock]) -> Prompt:
        prompt = self._engine.template.prompt([block.token_ids for block in wanted], question.text)
        window = self._engine.model.window
        needed = prompt.tokens + question.max_new_tokens
        if needed > window:
            parts = _parts(prompt, question.max_new_tokens)
            raise QuestionRefused(
                f"the request takes {needed} tokens ({parts}) and the model's window is {window}:"
                f" {_mend(prompt, question.max_new_tokens)}"
            )
        return prompt


def _parts(prompt: Prompt, max_new_tokens: int) -> str:
    """What the request is made of, in tokens."""
    chunks, count = sum(len(chunk) for chunk in prompt.chunks), len(prompt.chunks)
    return f"{chunks} for {count} chunks, {len(prompt.tail)} for the question, {max_new_tokens} for the answer"


def _mend(prompt: Prompt, max_new_tokens: int) -> str:
    """What makes the request smaller where it is largest; a single chunk cannot be fewer."""
    mends = {"shorten the question": len(prompt.tail), "lower --max-new-tokens": max_new_tokens}
    if len(prompt.chunks) > 1:
        mends["lower --top-k"] = sum(len(chunk) for chunk in prompt.chunks)
    return max(mends, key=lambda mend: mends[mend])


def _sources(hits: list[Hit], wanted: list[WantedBlock]) -> tuple[Source, ...]:
    return tuple(
        Source(block.chunk.title, block.chunk.page, block.chunk.start, block.chunk.end, block.chunk.text, hit.score)
        for hit, block in zip(hits, wanted, strict=True)
    )


def _told(plan: Plan, decision: Decision | None, execution: Execution) -> dict[str, Any]:
    """What `ask --json` shows as `plan`."""
    if decision is None:
        return {"choice": plan.strategy, "reason": "asked for"}
    return {**decision.as_json(), "overtaken_chunks": execution.overtaken}


def _timing(question: Question, retrieve_ms: float, execution: Execution, first_token_s: float) -> dict[str, float]:
    return {
        "retrieve": retrieve_ms,
        "load": execution.load_ms,
        "place": execution.place_ms,
        "compute": execution.compute_ms,
        "ttft": (first_token_s - question.arrived_s) * 1e3,
        "total": (time.perf_counter() - question.arrived_s) * 1e3,
    }
