"""The life of a question (DESIGN.md §5): retrieve, plan, load and place, compute, stream, settle.

`Answerer.answer` does it all for one question, on the caller's thread. The scheduler (appliance/scheduler) carries out
the same steps for several at a time.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from appliance.answers import AnswerEvent, AnswerFinished, AnswerText, Source
from appliance.block_source import StoredBlocks, WantedBlock, wanted_blocks
from appliance.choosing import HEAD, Choice, exact_first, may_take_near, through_gate, without_neighbours
from appliance.engine import Engine
from appliance.errors import NoDocuments, QuestionRefused
from appliance.gate import Gate
from appliance.hot_set import HotSet
from appliance.planner import ChunkCost, Planner
from appliance.reply import Prepared, Question, Reply
from appliance.retrieval import Hit, Retriever
from models.executor import Execution
from models.generation import generate
from models.prompt import Prompt
from models.selection import ChunkFacts
from models.strategies import find_strategy, mixed_plan
from storage.catalog import Catalog, CollectionRow
from storage.errors import EmbeddingMismatch
from storage.store import BlockStore

Observer = Callable[[Prompt, Execution], None]


class Answerer:
    """Answers questions over one catalog with one engine. The caller sees to whose turn it is at the model."""

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
        gate: Gate | None = None,
    ) -> None:
        """`observe` is told of every prompt and what carrying it out gave (benches); without a `planner` `auto` loads.

        `hot` counts the chunks of every answer. `later` is called where chunks lack a block and somebody
        else will compute them; without it they are computed after the answer. `gate` says what `auto` may do.
        """
        self._gate = gate
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
        prepared = self.prepare(question, collection)
        yield prepared.started
        reply, executor = self.begin(prepared), self._engine.executor
        finished = False  # what is stopped computes nothing more
        try:
            execution = executor.execute(
                prepared.prompt, prepared.plan, prepared.source, prepared.question.max_new_tokens
            )
            self.executed(reply, execution)
            tokens = generate(
                executor, execution.logits, prepared.prompt.tokens, prepared.question.max_new_tokens, stop
            )
            for token in tokens:
                if piece := reply.push(token):
                    yield AnswerText(piece)
            if piece := reply.finish():
                yield AnswerText(piece)
            finished = stop is None or not stop.is_set()
            self.learn(reply)
        finally:
            unkept = self.compute_absent(prepared) if keep and finished else []
            unkept += self.settle(prepared, finished) if keep else []
        yield AnswerFinished(reply.answer(unkept))

    def prepare(self, question: Question, collection: CollectionRow) -> Prepared:
        """Retrieve and plan.

        Raises QuestionRefused, NoDocuments, UnknownDocument, EmbeddingMismatch, UnknownStrategy.
        """
        self._check(question, collection)
        hits, wanted, retrieve_ms = self._retrieve(question, collection)
        prompt = self._prompt(question, wanted)
        # The prompt has the best chunk last; the source of blocks is indexed in that order.
        chosen = self._choose(question, prompt, list(reversed(wanted)))
        return Prepared(
            question=question,
            sources=_sources(hits, wanted),
            wanted=tuple(wanted),
            ordered=tuple(chosen.ordered),
            prompt=prompt,
            plan=chosen.plan,
            decision=chosen.decision,
            source=self._source(collection.name, chosen.ordered),
            retrieve_ms=retrieve_ms,
            told=chosen.told(),
        )

    def begin(self, prepared: Prepared) -> Reply:
        """The reply to collect the answer in."""
        return Reply(prepared, self._engine.model.tokenizer)

    def executed(self, reply: Reply, execution: Execution) -> None:
        """The prompt's last row is there."""
        reply.execution = execution
        if self._observe is not None:
            self._observe(reply.prepared.prompt, execution)

    def learn(self, reply: Reply) -> None:
        """After the last token: the planner learns what it took, unless another question shared the computer."""
        decision, execution = reply.prepared.decision, reply.execution
        if decision is not None and execution is not None and self._planner is not None and not execution.shared:
            self._planner.observe(decision, execution)

    def compute_absent(self, prepared: Prepared) -> list[str]:
        """Compute the blocks that a whole answer found missing, unless somebody else will; needs the model.

        Returns warnings.
        """
        return prepared.source.compute_absent() if self._later is None and _lacks_blocks(prepared) else []

    def settle(self, prepared: Prepared, finished: bool) -> list[str]:
        """Note what was used, keep what was computed, call for what is absent where the answer was `finished`.

        Writes to the disk and needs no model. Returns warnings.
        """
        if self._hot is not None:
            self._hot.log.note([block.chunk.id for block in prepared.wanted])
        absent = finished and _lacks_blocks(prepared)
        warnings = prepared.source.settle()
        if absent and self._later is not None:
            self._later()
        return warnings

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
            find_strategy(question.strategy, question.options)

    def _choose(self, question: Question, prompt: Prompt, ordered: list[WantedBlock]) -> Choice:
        """What to carry out: what was named, or for `auto` what the planner decides within the quality gate."""
        served = through_gate(self._gate, question, ordered)
        strategy = find_strategy(served.name, served.options)
        context = self._engine.reader.context
        ordered = exact_first(ordered, context) if strategy.near else without_neighbours(ordered)
        recorded = self._catalog.craft_scores([block.key for block in ordered]) if strategy.name == "craft" else {}
        exact = context == HEAD
        facts = [
            ChunkFacts(exact=exact and number == 0, outside_mass=recorded.get(block.key))
            for number, block in enumerate(ordered)
        ]
        plan = strategy.plan(prompt, facts)
        if question.strategy == "auto" and self._planner is not None:
            again_tokens = 0 if plan.selector is None else plan.selector.budget_tokens(prompt)
            decision = self._planner.decide(prompt, [self._cost(block) for block in ordered], again_tokens)
            # Reading everything again is within any bound, whatever the gate says.
            if served.name != "full" or decision.choice == "compute":
                plan = mixed_plan(prompt, decision.computed, decision.overtake_after_ms, plan)
                return Choice(plan, ordered, served, decision)
        return Choice(plan, ordered, served)

    def _cost(self, wanted: WantedBlock) -> ChunkCost:
        """What loading this chunk's block is planned with."""
        tokens, served = len(wanted.token_ids), wanted.served
        return ChunkCost(tokens) if served is None else ChunkCost(tokens, served.size_bytes, self._store.where(served))

    def _source(self, collection: str, ordered: list[WantedBlock]) -> StoredBlocks:
        parts = (self._engine, self._catalog, self._store, collection, ordered)
        return StoredBlocks(*parts) if self._hot is None else StoredBlocks(*parts, self._hot.room_for)

    def _retrieve(self, question: Question, collection: CollectionRow) -> tuple[list[Hit], list[WantedBlock], float]:
        """Hits best first, their chunks with ids and block rows, and the time since the question arrived."""
        hits = self._retriever.search(collection.id, question.text, question.top_k, documents=question.documents)
        if not hits:
            raise NoDocuments(f"collection {collection.name!r} holds no documents yet: ingest some first")
        chunks = self._catalog.chunks([hit.chunk_id for hit in hits])
        known = {chunk.id for chunk in chunks}
        hits = [hit for hit in hits if hit.chunk_id in known]
        wanted = wanted_blocks(
            self._engine, self._catalog, collection.name, chunks, near=may_take_near(self._gate, question)
        )
        if question.without_kv:
            wanted = [replace(block, row=None, near=None) for block in wanted]
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


def _lacks_blocks(prepared: Prepared) -> bool:
    """Whether the planner's answer found chunks without a block. Strategies that are named compute on the way."""
    missing = any(block.row is None for block in prepared.wanted)
    return prepared.decision is not None and (prepared.source.damaged or missing)


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


__all__ = ["Answerer", "Observer", "Question"]
