"""The one executor: carries out every plan over the arena."""

import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from models.arena import Arena
from models.forward import next_token_logits, run_rows, scattered_rows
from models.placing import PlacerChoice
from models.prompt import Prompt
from models.reader import ChunkReader
from models.strategies import Origin, Plan, Segment
from storage.blocks import EncodedBlock

LOADER_THREADS = 4


@dataclass(frozen=True)
class LeasedBlock:
    """A block that stays where it is until `release` is called, and the tier it came from."""

    block: EncodedBlock
    tier: str
    release: Callable[[], None]


class BlockSource(Protocol):
    """Where the blocks of one question come from. `chunk` is an index into `Prompt.chunks`."""

    def load(self, chunk: int) -> LeasedBlock | None:
        """The chunk's block, checked, or None if it must be computed. Called from several threads at once."""

    def compute(self, chunk: int) -> EncodedBlock:
        """Compute the block of a chunk that could not be loaded. Called from the thread that runs the plan."""


@dataclass
class Execution:
    """What carrying out a plan gave: `logits` float32 `[vocabulary]` after the last row, times in milliseconds.

    `tiers` counts chunks by where they came from. Loading and placing overlap on several threads; the wall time of
    both together is shared between them by the time each took.
    """

    logits: torch.Tensor
    tokens_reused: int
    tokens_computed: int
    load_ms: float
    place_ms: float
    compute_ms: float
    tiers: dict[str, int] = field(default_factory=dict)


class Executor:
    """Owns the arena and the loader's threads of one model. One plan at a time."""

    def __init__(self, reader: ChunkReader, placers: PlacerChoice) -> None:
        self.model = reader.model
        self.arena = Arena(self.model.geometry, self.model.dtype, self.model.device, self.model.window)
        self.placers = placers
        self._reader = reader
        self._pool = ThreadPoolExecutor(LOADER_THREADS, thread_name_prefix="loader")

    def execute(self, prompt: Prompt, plan: Plan, source: BlockSource, room_tokens: int = 0) -> Execution:
        """Put the prompt's KV together and compute its last row; `room_tokens` more slots are kept for the answer.

        Raises PromptTooLong before anything is loaded, and whatever `source` raises.
        """
        self.arena.reserve(prompt.tokens + room_tokens)
        began = time.perf_counter()
        blocks = [segment for segment in plan.segments if segment.origin is Origin.BLOCK]
        placed = self._place_blocks(blocks, source, plan.tokens)
        missing = [segment for segment, tier in placed.tiers.items() if tier is None]
        place_end = time.perf_counter()
        for segment in missing:
            self._place(source.compute(_chunk(segment)), segment.start, plan.tokens)
        if any(segment.origin is Origin.HEAD for segment in plan.segments):
            head = self._reader.head_tokens
            self.arena.keys[:, :, :head] = self._reader.head_keys
            self.arena.values[:, :, :head] = self._reader.head_values
        positions = plan.rows()
        rows = scattered_rows(positions, self.model.device)
        hidden = run_rows(self.model, self.arena, prompt.ids()[positions], rows, plan.tokens)
        logits = next_token_logits(self.model, hidden)
        tiers: dict[str, int] = {}
        for tier in placed.tiers.values():
            tiers[tier or "computed"] = tiers.get(tier or "computed", 0) + 1
        computed = _computed_tokens(positions, missing)
        both = placed.load_s + placed.place_s
        load_share = placed.load_s / both if both else 0.0
        wall_ms = (place_end - began) * 1e3 if blocks else 0.0
        return Execution(
            logits=logits,
            tokens_reused=plan.tokens - computed,
            tokens_computed=computed,
            load_ms=wall_ms * load_share,
            place_ms=wall_ms * (1 - load_share),
            compute_ms=(time.perf_counter() - (place_end if blocks else began)) * 1e3,
            tiers=tiers,
        )

    def close(self) -> None:
        """Stop the loader's threads."""
        self._pool.shutdown(wait=True)

    def _place_blocks(self, segments: list[Segment], source: BlockSource, tokens: int) -> "_Placed":
        """Load and place on several threads; each block is placed by the thread that read it.

        Returns or raises only when no thread writes to the arena any more: the next question has the same slots.
        """
        placed = _Placed()
        self.model.rotary.upto(tokens)  # grown here, not by several threads at once
        under_way = [self._pool.submit(self._load_one, segment, source, tokens) for segment in segments]
        _, left = wait(under_way, return_when=FIRST_EXCEPTION)
        for future in left:
            future.cancel()
        wait(under_way)
        failed = next((future for future in under_way if not future.cancelled() and future.exception()), None)
        if failed is not None:
            failed.result()
        for segment, tier, load_s, place_s in (future.result() for future in under_way):
            placed.tiers[segment] = tier
            placed.load_s += load_s
            placed.place_s += place_s
        return placed

    def _load_one(self, segment: Segment, source: BlockSource, tokens: int) -> tuple[Segment, str | None, float, float]:
        began = time.perf_counter()
        leased = source.load(_chunk(segment))
        loaded = time.perf_counter()
        if leased is None:
            return segment, None, loaded - began, 0.0
        try:
            self._place(leased.block, segment.start, tokens)
        finally:
            leased.release()
        return segment, leased.tier, loaded - began, time.perf_counter() - loaded

    def _place(self, block: EncodedBlock, start: int, tokens: int) -> None:
        cos, sin = self.model.rotary.upto(tokens)
        self.placers.find(block, self.arena).place(block, self.arena, start, cos, sin)


@dataclass
class _Placed:
    tiers: dict[Segment, str | None] = field(default_factory=dict)
    load_s: float = 0.0
    place_s: float = 0.0


def _computed_tokens(positions: np.ndarray, missing: list[Segment]) -> int:
    """Tokens that were computed for this prompt; a row of a missing block that is recomputed counts once."""
    inside = [np.arange(segment.start, segment.start + segment.tokens) for segment in missing]
    return len(np.unique(np.concatenate([positions, *inside])))


def _chunk(segment: Segment) -> int:
    if segment.chunk is None:
        raise ValueError("only a chunk can come from a block")
    return segment.chunk


class ComputedSource:
    """A source without a store: every block is computed by the reader and none kept (warming up, tests)."""

    def __init__(self, reader: ChunkReader, chunks: tuple[np.ndarray, ...]) -> None:
        self._reader = reader
        self._chunks = chunks

    def load(self, chunk: int) -> LeasedBlock | None:
        return None

    def compute(self, chunk: int) -> EncodedBlock:
        return self._reader.block(self._chunks[chunk], key="0" * 64, fingerprint="none", collection="none")
