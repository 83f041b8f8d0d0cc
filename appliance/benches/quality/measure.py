"""One question through every method, in turns: `full` first, because the others are scored along its answer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from appliance.benches.quality.base import ANSWER_TOKENS, FULL, Method, Outcome
from appliance.benches.quality.blocks import ChunkBlocks
from appliance.benches.quality.passages import Neighbours
from appliance.benches.quality.sources import MemoryShelf, Shelf
from appliance.engine import Engine
from models.executor import ComputedSource, Execution
from models.generation import generate
from models.landing import BlockSource
from models.prompt import Prompt
from models.scoring import answer_log_probs, divergence
from models.selection import ChunkFacts
from models.strategies import DEFAULT_SELECT, Plan, StrategyOptions, find_strategy
from storage.blocks import EncodedBlock


@dataclass(frozen=True)
class Reference:
    """`full` on one prompt: `log_probs` float32 `[positions, vocabulary]` along its own `answer` (`fed` into it)."""

    outcome: Outcome
    fed: tuple[int, ...]
    log_probs: torch.Tensor = field(repr=False)


@dataclass(frozen=True)
class Measured:
    """One question through all methods, in the order of their turns."""

    prompt: Prompt
    outcomes: dict[Method, Outcome] = field(default_factory=dict)


class Lab:
    """Carries out methods over blocks of its own, never touching a store. One thread at a time."""

    def __init__(
        self,
        engine: Engine,
        blocks: ChunkBlocks,
        neighbours: Neighbours,
        shelf: Shelf | None = None,
        answer_tokens: int = ANSWER_TOKENS,
        exact_first: bool = True,
        keep_logits: bool = False,
        against: Engine | None = None,
    ) -> None:
        """`against`: another engine of the same model whose `full` all is compared with, instead of this one's."""
        self._engine = engine
        self._executor = engine.executor
        self._blocks = blocks
        self._neighbours = neighbours
        self._shelf = shelf or MemoryShelf()
        self._answer_tokens = answer_tokens
        self._exact_first = exact_first and engine.reader.context == "head"
        self._keep_logits = keep_logits
        self._against = None if against is None else Lab(against, blocks, neighbours, None, answer_tokens)

    def ask(self, prompt: Prompt, methods: Sequence[Method], answer: bool, turn: int = 0) -> Measured:
        """Every method on one prompt; `turn` rotates their order. Raises PromptTooLong, BlockRefused."""
        reference = (self._against or self).read(prompt)
        given = {method: reference.outcome for method in methods if method.name == FULL and self._against is None}
        found, others = dict(given), [method for method in methods if method not in given]
        for place in range(len(others)):
            method = others[(place + turn) % len(others)]
            found[method] = self.measure(prompt, reference, method, answer)
        return Measured(prompt, found)

    def read(self, prompt: Prompt) -> Reference:
        """`full`: its time, its greedy answer, and its distributions along that."""
        plan = find_strategy(FULL).plan(prompt)
        execution, ttft_ms = self._execute(prompt, plan, ComputedSource(self._engine.reader, prompt.chunks))
        logits = execution.logits.clone()
        answer = self._greedy(prompt, execution)
        fed = answer[: self._answer_tokens - 1]
        log_probs = answer_log_probs(self._executor, prompt, fed)
        outcome = Outcome(
            divergence(log_probs, log_probs), ttft_ms, 0, execution.tokens_computed, answer, self._text(answer)
        )
        return Reference(replace(outcome, logits=logits) if self._keep_logits else outcome, fed, log_probs)

    def measure(self, prompt: Prompt, reference: Reference, method: Method, answer: bool) -> Outcome:
        """One method on a prompt that `full` has read."""
        source: BlockSource = ComputedSource(self._engine.reader, prompt.chunks)
        if method.codec is not None:
            source = self._shelf.source(self._placed(prompt, method))
        options = StrategyOptions(method.ratio, method.select or DEFAULT_SELECT)
        plan = find_strategy(method.strategy, options).plan(prompt, self._facts(prompt, method))
        execution, ttft_ms = self._execute(prompt, plan, source)
        logits = execution.logits.clone() if self._keep_logits else None
        told = self._greedy(prompt, execution) if answer else None
        log_probs = answer_log_probs(self._executor, prompt, reference.fed)
        return Outcome(
            divergence=divergence(reference.log_probs, log_probs),
            ttft_ms=ttft_ms,
            tokens_recomputed=execution.tokens_recomputed,
            tokens_computed=execution.tokens_computed,
            answer=told,
            text=self._text(told or ()),
            logits=logits,
        )

    def neighbours_of(self, prompt: Prompt, chunk: int) -> tuple[np.ndarray, ...]:
        """What the near block of a chunk was read behind; () where it has none."""
        ids = prompt.chunks[chunk]
        return self._neighbours.of(ids, prompt.chunks, self._blocks.room_tokens(len(ids)))

    def prepare(self, prompt: Prompt, chunk: int, method: Method) -> EncodedBlock:
        """The method's block of one chunk, computed where it is not there yet. Raises BlockRefused."""
        if method.codec is None:
            raise ValueError(f"{method.name} takes no blocks")
        ids = prompt.chunks[chunk]
        near = method.near and not (self._exact_first and chunk == 0)
        behind = self.neighbours_of(prompt, chunk) if near else ()
        return self._blocks.near(ids, behind, method.codec) if behind else self._blocks.base(ids, method.codec)

    def _placed(self, prompt: Prompt, method: Method) -> list[EncodedBlock]:
        """The method's blocks in prompt order."""
        return [self.prepare(prompt, chunk, method) for chunk in range(len(prompt.chunks))]

    def _facts(self, prompt: Prompt, method: Method) -> list[ChunkFacts]:
        facts = []
        for chunk, ids in enumerate(prompt.chunks):
            exact = self._exact_first and chunk == 0
            behind = self.neighbours_of(prompt, chunk) if method.name == "craft" else ()
            mass = self._blocks.outside_mass(ids, behind)[0] if behind else None
            facts.append(ChunkFacts(exact, mass))
        return facts

    def _execute(self, prompt: Prompt, plan: Plan, source: BlockSource) -> tuple[Execution, float]:
        began = time.perf_counter()
        execution = self._executor.execute(prompt, plan, source, self._answer_tokens)
        self._engine.model.wait()
        return execution, (time.perf_counter() - began) * 1e3

    def _greedy(self, prompt: Prompt, execution: Execution) -> tuple[int, ...]:
        return tuple(generate(self._executor, execution.logits, prompt.tokens, self._answer_tokens))

    def _text(self, ids: Sequence[int]) -> str:
        return str(self._engine.model.tokenizer.decode(list(ids), skip_special_tokens=True)).strip()
