"""The one executor: carries out every plan over the arena."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from models.arena import Arena
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
from models.selection import Selected, Stitched
from models.strategies import Origin, Plan, Segment
from storage.blocks import EncodedBlock
from storage.codecs import CodecPair

LOADER_THREADS = 4


@dataclass
class Execution:
    """What carrying out a plan gave: `logits` float32 `[vocabulary]` after the last row, times in milliseconds.

    `tokens_recomputed` of the computed ones are tokens of placed blocks that the plan's selector chose.

    `tiers` counts chunks by where they came from, `overtaken` those computed because their load took too long.
    `load_ms + place_ms` is the time from the first lease to the last slot placed, shared between both by the threads'
    time in each; a pass that ran meanwhile is in `compute_ms` alone.
    """

    logits: torch.Tensor
    tokens_reused: int
    tokens_computed: int
    load_ms: float
    place_ms: float
    compute_ms: float
    tiers: dict[str, int] = field(default_factory=dict)
    overtaken: int = 0
    tokens_recomputed: int = 0


class Executor:
    """Owns the arena and the loader's threads of one model. One plan at a time."""

    def __init__(self, reader: ChunkReader, placers: PlacerChoice) -> None:
        self.model = reader.model
        self.arena, self._scratch = (
            Arena(self.model.geometry, self.model.dtype, self.model.device, self.model.window) for _ in range(2)
        )
        self.placers = placers
        self._reader = reader
        self._pool = ThreadPoolExecutor(LOADER_THREADS, thread_name_prefix="loader")

    def execute(self, prompt: Prompt, plan: Plan, source: BlockSource, room_tokens: int = 0) -> Execution:
        """Put the prompt's KV together and compute its last row; `room_tokens` more slots are kept for the answer.

        Raises PromptTooLong before anything is loaded, and whatever `source` raises. Returns or raises only when no
        thread writes to the arena any more: the next question has the same slots.
        """
        self.arena.reserve(prompt.tokens + room_tokens)
        self.model.rotary.upto(plan.tokens)  # grown here, not by several threads at once
        blocks = [segment for segment in plan.segments if segment.origin is Origin.BLOCK]
        began = time.perf_counter()
        loads = Loads(self._pool, blocks, source, lambda *landed: self._place(*landed))
        try:
            return self._carry_out(prompt, plan, source, loads, began)
        finally:
            loads.abandon()
            if plan.overtake_after_ms is None:
                loads.join()  # with a deadline nobody waits: a stalled read ends, and gives its lease back, when it can

    def _carry_out(self, prompt: Prompt, plan: Plan, source: BlockSource, loads: Loads, began: float) -> Execution:
        if plan.segments[0].origin is Origin.HEAD:
            head = self._reader.head_tokens
            self.arena.keys[:, :, :head] = self._reader.head_keys
            self.arena.values[:, :, :head] = self._reader.head_values
        ids, done = prompt.ids(), np.zeros(plan.tokens, dtype=bool)
        ahead = _computed_ahead(plan) if loads.landings else 0
        waiting = began
        stitched = self._stitched(prompt, plan)
        prepared = None
        if stitched is not None and plan.selector is not None:
            prepared = plan.selector.prepare(stitched)
        if ahead:
            self._pass(ids, _first(plan), ahead, done)
        if ahead or prepared is not None:
            waiting = time.perf_counter()
        overtaking_s = 0.0
        if plan.overtake_after_ms is None:
            loads.wait()
        elif not loads.wait(plan.overtake_after_ms / 1e3):
            overtaking_s = self._overtake(ids, plan, loads, done)
        landed = time.perf_counter()
        missing = [landing.segment for landing in loads.landings.values() if landing.state is LandingState.MISSING]
        if plan.overtake_after_ms is None:
            for segment in missing:
                self._place(segment, source.compute(chunk_of(segment)), None)
        rows = self._last_rows(plan, loads, done)
        selected = None
        if stitched is not None and plan.selector is not None:
            selected = plan.selector.choose(stitched, prepared)
            rows = np.union1d(rows, selected.positions)
        hidden = self._last_pass(ids, rows, plan, selected)
        logits = next_token_logits(self.model, hidden)
        done[rows] = True
        for segment in missing:
            done[segment.start : segment.start + segment.tokens] = True
        wall_ms = (landed - waiting - overtaking_s) * 1e3 if loads.landings else 0.0
        total_ms = (time.perf_counter() - began) * 1e3
        execution = _execution(logits, plan, loads, int(done.sum()), wall_ms, total_ms)
        return execution if selected is None else replace(execution, tokens_recomputed=len(selected.positions))

    def close(self) -> None:
        """Stop the loader's threads."""
        self._pool.shutdown(wait=True)

    def _pass(self, ids: np.ndarray, first: int, end: int, done: np.ndarray) -> float:
        """Compute the tokens `[first, end)` over everything before them; returns the seconds it took."""
        began = time.perf_counter()
        rows = contiguous_rows(first, end - first, self.model.device)
        run_rows(self.model, self.arena, ids[first:end], rows, end)
        done[first:end] = True
        return time.perf_counter() - began

    def _last_pass(self, ids: np.ndarray, rows: np.ndarray, plan: Plan, selected: Selected | None) -> torch.Tensor:
        """Compute these rows over everything; hidden states `[rows, hidden]`, from where a selector left off."""
        model, scattered = self.model, scattered_rows(rows, self.model.device)
        if selected is None or selected.hidden is None:
            hidden, first = embed_rows(model, ids[rows]), 0
        else:
            hidden, first = selected.hidden, selected.first_layer
        layers = range(first, model.geometry.layers)
        return final_norm(model, run_layers(model, self.arena, hidden, scattered, plan.tokens, layers))

    def _stitched(self, prompt: Prompt, plan: Plan) -> Stitched | None:
        """What the plan's selector sees; None where there is none, or no chunk to choose from."""
        if plan.selector is None or not prompt.chunks:
            return None
        return Stitched(
            model=self.model,
            arena=self.arena,
            scratch=self._scratch,
            head_keys=self._reader.head_keys,
            head_values=self._reader.head_values,
            prompt=prompt,
            facts=plan.facts,
            budget_tokens=plan.selector.budget_tokens(prompt),
        )

    def _overtake(self, ids: np.ndarray, plan: Plan, loads: Loads, done: np.ndarray) -> float:
        """Compute from the front what has not been placed, while the loader goes on from the end.

        Half of what is still coming each time: few passes, and what comes meanwhile is not lost. As soon as nothing is
        coming any more, all that is left goes into the last pass. Returns the seconds computed.
        """
        queue = [segment for segment in plan.segments if segment.chunk is not None and not done[segment.start]]
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
                took_s += self._pass(ids, run[0].start, run[-1].start + run[-1].tokens, done)
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

    def _place(self, segment: Segment, block: EncodedBlock, layers: range | None) -> None:
        cos, sin = self.model.rotary.upto(segment.start + segment.tokens)
        self.placers.find(block, self.arena).place(block, self.arena, segment.start, cos, sin, layers)


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


def _execution(
    logits: torch.Tensor, plan: Plan, loads: Loads, computed: int, wall_ms: float, total_ms: float
) -> Execution:
    landings = list(loads.landings.values())
    tiers: dict[str, int] = {}
    for segment in plan.segments:
        if segment.chunk is not None:
            landed = loads.landings.get(segment)
            name = landed.tier if landed is not None and landed.tier else "computed"
            tiers[name] = tiers.get(name, 0) + 1
    load_s, place_s = sum(landing.load_s for landing in landings), sum(landing.place_s for landing in landings)
    share = load_s / (load_s + place_s) if load_s + place_s else 0.0
    return Execution(
        logits=logits,
        tokens_reused=plan.tokens - computed,
        tokens_computed=computed,
        load_ms=wall_ms * share,
        place_ms=wall_ms * (1 - share),
        compute_ms=total_ms - wall_ms,
        tiers=tiers,
        overtaken=sum(landing.state is LandingState.OVERTAKEN for landing in landings),
    )


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


__all__ = ["BlockSource", "ComputedSource", "Execution", "Executor", "LeasedBlock"]
