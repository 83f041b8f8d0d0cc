"""The one executor: carries out every plan over the arena."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch

from models.arena import Arena
from models.execution import Abandoned, Begun, Execution, execution_of
from models.forward import (
    contiguous_rows,
    embed_rows,
    final_norm,
    next_token_logits,
    run_layers,
    run_rows,
    scattered_rows,
)
from models.landing import BlockSource, LandingState, LayerListener, LeasedBlock, Loads, chunk_of
from models.placing import PlacerChoice
from models.prompt import Prompt
from models.reader import ChunkReader
from models.selection import ChunkFacts, Selected, Stitched
from models.strategies import Origin, Plan, Segment
from storage.blocks import EncodedBlock
from storage.codecs import CodecPair

LOADER_THREADS = 4
# A plan that is carried out later than this after it began waited for another's pass.
ALONE_S = 0.003


class Executor:
    """Owns an arena and the loader's threads of one model. Many plans may have begun, each in an arena of its own;
    one is carried out at a time."""

    def __init__(self, reader: ChunkReader, placers: PlacerChoice) -> None:
        self.model = reader.model
        self.arena, self._scratch = (
            Arena(self.model.geometry, self.model.dtype, self.model.device, self.model.window) for _ in range(2)
        )
        self.placers = placers
        self._reader = reader
        self._pool = ThreadPoolExecutor(LOADER_THREADS, thread_name_prefix="loader")

    def execute(
        self, prompt: Prompt, plan: Plan, source: BlockSource, room_tokens: int = 0, arena: Arena | None = None
    ) -> Execution:
        """Put the prompt's KV together and compute its last row; `room_tokens` more slots are kept for the answer.

        Raises PromptTooLong before anything is loaded, and whatever `source` raises. Returns or raises only when no
        thread writes to the arena (its own, if none is given) any more: the next question has the same slots.
        """
        return self.finish(self.begin(prompt, plan, source, room_tokens, arena))

    def begin(
        self, prompt: Prompt, plan: Plan, source: BlockSource, room_tokens: int = 0, arena: Arena | None = None
    ) -> Begun:
        """Have the plan's blocks loaded and placed by the loader's threads; returns at once. See `execute`.

        What was begun is finished or abandoned. Any thread may begin.
        """
        arena = arena or self.arena
        arena.reserve(prompt.tokens + room_tokens)
        self.model.rotary.upto(plan.tokens)  # grown here, not by several threads at once
        blocks = [segment for segment in plan.segments if segment.origin is Origin.BLOCK]
        began_s = time.perf_counter()
        loads = Loads(self._pool, blocks, source, lambda *landed: self._place(arena, *landed))
        return Begun(prompt, plan, source, arena, loads, began_s)

    def finish(self, begun: Begun) -> Execution:
        """Carry out what was begun. As `execute`; raises Abandoned where it was abandoned meanwhile."""
        try:
            return self._carry_out(begun)
        finally:
            begun.loads.abandon()
            if begun.plan.overtake_after_ms is None and not begun.abandoned:
                begun.loads.join()  # with a deadline nobody waits: a stalled read gives its lease back when it can

    def _carry_out(self, begun: Begun) -> Execution:
        prompt, plan, loads, arena = begun.prompt, begun.plan, begun.loads, begun.arena
        if plan.segments[0].origin is Origin.HEAD:
            head = self._reader.head_tokens
            arena.keys[:, :, :head] = self._reader.head_keys
            arena.values[:, :, :head] = self._reader.head_values
        ids, done = prompt.ids(), np.zeros(plan.tokens, dtype=bool)
        ahead = _computed_ahead(plan) if loads.landings else 0
        entered = time.perf_counter()
        waiting = begun.began_s
        stitched = self._stitched(begun)
        prepared = None
        if stitched is not None and plan.selector is not None:
            prepared = plan.selector.prepare(stitched)
        if ahead:
            self._pass(arena, ids, _first(plan), ahead, done)
        if ahead or prepared is not None:
            waiting = time.perf_counter()
        overtaking_s = 0.0
        if plan.overtake_after_ms is None:
            loads.wait()
        elif not loads.wait(plan.overtake_after_ms / 1e3):
            overtaking_s = self._overtake(begun, ids, done)
        if begun.abandoned:
            raise Abandoned("the question was stopped")
        landed = time.perf_counter()
        missing = [landing.segment for landing in loads.landings.values() if landing.state is LandingState.MISSING]
        if plan.overtake_after_ms is None:
            for segment in missing:
                self._place(arena, segment, begun.source.compute(chunk_of(segment)), None)
        selected = None if stitched is None else self._select(begun, stitched, prepared, ids, done)
        rows = self._last_rows(plan, loads, done)
        if selected is not None:
            rows = np.union1d(rows, selected.positions)
        hidden = self._last_pass(arena, ids, rows, plan, selected)
        logits = next_token_logits(self.model, hidden)
        done[rows] = True
        for segment in missing:
            done[segment.start : segment.start + segment.tokens] = True
        blocked_s = landed - max(waiting, entered) - overtaking_s if loads.landings else 0.0
        loaded_s = landed if overtaking_s else min(landed, loads.landed_s)
        loading_s = loaded_s - waiting - overtaking_s if loads.landings else 0.0
        compute_ms = (time.perf_counter() - entered - blocked_s) * 1e3
        execution = execution_of(logits, plan, loads, int(done.sum()), max(loading_s, 0.0) * 1e3, compute_ms)
        shared = bool(loads.landings) and entered - begun.began_s > ALONE_S
        return replace(execution, tokens_recomputed=0 if selected is None else len(selected.positions), shared=shared)

    def close(self) -> None:
        """Stop the loader's threads."""
        self._pool.shutdown(wait=True)

    def _pass(self, arena: Arena, ids: np.ndarray, first: int, end: int, done: np.ndarray) -> float:
        """Compute the tokens `[first, end)` over everything before them; returns the seconds it took."""
        began = time.perf_counter()
        rows = contiguous_rows(first, end - first, self.model.device)
        run_rows(self.model, arena, ids[first:end], rows, end)
        done[first:end] = True
        return time.perf_counter() - began

    def _last_pass(
        self, arena: Arena, ids: np.ndarray, rows: np.ndarray, plan: Plan, selected: Selected | None
    ) -> torch.Tensor:
        """Compute these rows over everything; hidden states `[rows, hidden]`, from where a selector left off."""
        model, scattered = self.model, scattered_rows(rows, self.model.device)
        if selected is None or selected.hidden is None:
            hidden, first = embed_rows(model, ids[rows]), 0
        else:
            hidden, first = selected.hidden, selected.first_layer
        layers = range(first, model.geometry.layers)
        return final_norm(model, run_layers(model, arena, hidden, scattered, plan.tokens, layers))

    def _stitched(self, begun: Begun) -> Stitched | None:
        """What the plan's selector sees; None where there is none, or nothing to choose."""
        prompt, plan = begun.prompt, begun.plan
        if plan.selector is None or not prompt.chunks:
            return None
        stitched = Stitched(
            model=self.model,
            arena=begun.arena,
            scratch=self._scratch,
            head_keys=self._reader.head_keys,
            head_values=self._reader.head_values,
            prompt=prompt,
            facts=plan.facts,
            budget_tokens=plan.selector.budget_tokens(prompt),
        )
        return stitched if stitched.budget_tokens and stitched.candidates().any() else None

    def _select(
        self, begun: Begun, stitched: Stitched, prepared: torch.Tensor | None, ids: np.ndarray, done: np.ndarray
    ) -> Selected | None:
        """What the selector chooses; None where nothing is left to choose.

        It looks at the keys of every chunk, so those that came from no block are computed first. They have seen all
        that stands before them: computing them again changes little.
        """
        plan, loads = begun.plan, begun.loads
        if plan.overtake_after_ms is not None:
            rows = self._last_rows(plan, loads, done)
            rows = rows[rows < stitched.end]
            if len(rows):
                self._last_pass(begun.arena, ids, rows, plan, None)
                done[rows] = True
        whole = [segment for segment in plan.segments if segment.chunk is not None and done[segment.start]]
        computed = {segment.chunk for segment in whole}
        known = plan.facts or [ChunkFacts()] * len(begun.prompt.chunks)
        facts = [replace(one, exact=one.exact or number in computed) for number, one in enumerate(known)]
        stitched = replace(stitched, facts=facts)
        if plan.selector is None or not stitched.candidates().any():
            return None
        return plan.selector.choose(stitched, prepared)

    def _overtake(self, begun: Begun, ids: np.ndarray, done: np.ndarray) -> float:
        """Compute from the front what has not been placed, while the loader goes on from the end.

        Half of what is still coming each time: few passes, and what comes meanwhile is not lost. As soon as nothing is
        coming any more, all that is left goes into the last pass. Returns the seconds computed.
        """
        loads = begun.loads
        queue = [segment for segment in begun.plan.segments if segment.chunk is not None and not done[segment.start]]
        took_s, at = 0.0, 0
        while loads.coming and at < len(queue):
            most = -(-loads.coming // 2)
            run: list[Segment] = []
            while at < len(queue):
                landing = loads.landings.get(queue[at])
                coming = landing is not None and landing.state is LandingState.COMING
                if coming and not most:
                    break
                ours = landing is None or loads.overtake(landing)
                most -= coming
                at += 1
                if ours:
                    run.append(queue[at - 1])
                elif run:
                    break  # a placed block ends the run
            if run and loads.coming:
                took_s += self._pass(begun.arena, ids, run[0].start, run[-1].start + run[-1].tokens, done)
        return took_s

    def _last_rows(self, plan: Plan, loads: Loads, done: np.ndarray) -> np.ndarray:
        """Positions of the last pass: what no block and no earlier pass gave, and what is to be computed again."""
        wanted = np.zeros(plan.tokens, dtype=bool)
        for segment in plan.segments:
            landing = loads.landings.get(segment)
            fallen = landing is not None and landing.state is not LandingState.PLACED
            if segment.origin is Origin.COMPUTE or (fallen and plan.overtake_after_ms is not None):
                wanted[segment.start : segment.start + segment.tokens] = True
        wanted &= ~done
        wanted[plan.recompute] = True
        return np.flatnonzero(wanted)

    def _place(self, arena: Arena, segment: Segment, block: EncodedBlock, layers: range | None) -> None:
        cos, sin = self.model.rotary.upto(segment.start + segment.tokens)
        self.placers.find(block, arena).place(block, arena, segment.start, cos, sin, layers)


def _first(plan: Plan) -> int:
    head = plan.segments[0]
    return head.tokens if head.origin is Origin.HEAD else 0


def _computed_ahead(plan: Plan) -> int:
    """The end of the run of computed segments at the beginning, 0 where there is none: it needs no block."""
    first = end = _first(plan)
    for segment in plan.segments:
        if segment.start < first:
            continue
        if segment.origin is not Origin.COMPUTE:
            break
        end = segment.start + segment.tokens
    return end if end > first and end < plan.tokens else 0


class ComputedSource:
    """A source without a store: every block is computed by the reader and none kept (warming up, tests)."""

    def __init__(self, reader: ChunkReader, chunks: tuple[np.ndarray, ...], codec: CodecPair | None = None) -> None:
        self._reader = reader
        self._chunks = chunks
        self._codec = codec

    def load(self, chunk: int, on_layers: LayerListener) -> LeasedBlock | None:
        return None

    def compute(self, chunk: int) -> EncodedBlock:
        return self._reader.block(self._chunks[chunk], "0" * 64, "none", "none", self._codec)


__all__ = ["Abandoned", "Begun", "BlockSource", "ComputedSource", "Execution", "Executor", "LeasedBlock"]
