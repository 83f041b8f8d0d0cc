"""The life of a question (DESIGN.md §5): retrieve, plan, load and place, compute, stream, settle."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from appliance.answers import Answer, AnswerEvent, AnswerFinished, AnswerStarted, AnswerText, Source
from appliance.block_source import StoredBlocks, WantedBlock, wanted_blocks
from appliance.engine import Engine
from appliance.errors import NoDocuments, QuestionRefused
from appliance.retrieval import Hit, Retriever
from models.executor import Execution
from models.generation import TextStream, generate
from models.prompt import Prompt
from models.strategies import find_strategy
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


class Answerer:
    """Answers questions over one catalog with one engine. One question at a time; the caller sees to that."""

    def __init__(
        self,
        engine: Engine,
        catalog: Catalog,
        store: BlockStore,
        retriever: Retriever,
        observe: Observer | None = None,
    ) -> None:
        """`observe` is told of every prompt and what carrying it out gave (benches)."""
        self._observe = observe
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
        if not question.text.strip():
            raise QuestionRefused("the question is empty: ask something")
        if any("\ud800" <= character <= "\udfff" for character in question.text):
            raise QuestionRefused("the question is not valid Unicode: type it again")
        if collection.embedding_fingerprint != self._engine.embedding.fingerprint:
            raise EmbeddingMismatch(
                f"collection {collection.name!r} was begun with another embedding model: name it with --embedding"
            )
        strategy = find_strategy("reuse" if question.strategy == "auto" else question.strategy)
        hits, wanted, retrieve_ms = self._retrieve(question, collection)
        prompt = self._prompt(question, wanted)
        sources = _sources(hits, wanted)
        yield AnswerStarted(sources, prompt.tokens, strategy.name)
        # The prompt has the best chunk last; the source of blocks is indexed in that order.
        source = StoredBlocks(self._engine, self._store, collection.name, list(reversed(wanted)))
        try:
            plan = strategy.plan(prompt)
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
        finally:
            unkept = source.settle(self._catalog) if keep else []
        answer = Answer(
            question=question.text,
            answer=stream.text.strip(),
            sources=sources,
            strategy=strategy.name,
            tokens={
                "prompt": prompt.tokens,
                "reused": execution.tokens_reused,
                "computed": execution.tokens_computed,
                "generated": len(ids),
            },
            timing=timing,
            tiers=execution.tiers if execution.tiers else {"computed": len(wanted)},
            warnings=tuple(warnings + unkept),
            answer_ids=tuple(ids),
        )
        yield AnswerFinished(answer)

    def _retrieve(self, question: Question, collection: CollectionRow) -> tuple[list[Hit], list[WantedBlock], float]:
        """Hits best first, their chunks with ids and block rows, and the time since the question arrived."""
        hits = self._retriever.search(collection.id, question.text, question.top_k)
        if not hits:
            raise NoDocuments(f"collection {collection.name!r} holds no documents yet: ingest some first")
        chunks = self._catalog.chunks([hit.chunk_id for hit in hits])
        known = {chunk.id for chunk in chunks}
        hits = [hit for hit in hits if hit.chunk_id in known]
        wanted = wanted_blocks(self._engine, self._catalog, collection.name, chunks)
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


def _timing(question: Question, retrieve_ms: float, execution: Execution, first_token_s: float) -> dict[str, float]:
    return {
        "retrieve": retrieve_ms,
        "load": execution.load_ms,
        "place": execution.place_ms,
        "compute": execution.compute_ms,
        "ttft": (first_token_s - question.arrived_s) * 1e3,
        "total": (time.perf_counter() - question.arrived_s) * 1e3,
    }
