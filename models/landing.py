"""Blocks on their way into the arena, and who may write a segment's slots: its loader, or the pass that overtakes."""

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from enum import Enum
from typing import Protocol

from models.strategies import Segment
from storage.blocks import EncodedBlock

LayerListener = Callable[[EncodedBlock, range], None]


class LeasedBlock(Protocol):
    """A block that stays where it is until `release` is called, and the tier it came from (storage.tiers.Lease)."""

    @property
    def block(self) -> EncodedBlock: ...
    @property
    def tier(self) -> str: ...
    @property
    def release(self) -> Callable[[], None]: ...


class BlockSource(Protocol):
    """Where the blocks of one question come from. `chunk` is an index into `Prompt.chunks`."""

    def load(self, chunk: int, on_layers: LayerListener) -> LeasedBlock | None:
        """The chunk's block, or None if it must be computed. Called from several threads at once.

        `on_layers` is called, on the same thread, with each run of layers as soon as they are checked, before the
        next ones are read. After None, whatever it was given counts for nothing.
        """

    def compute(self, chunk: int) -> EncodedBlock:
        """Compute the block of a chunk that could not be loaded. Called from the thread that runs the plan."""


class LandingState(Enum):
    """What became of a segment's block."""

    COMING = "coming"
    PLACED = "placed"
    MISSING = "missing"  # no block, or a damaged one
    OVERTAKEN = "overtaken"  # the pass over the prompt computes it; what still comes is dropped


class Landing:
    """One segment's way into its slots. `state` changes once; after that no loader writes the slots any more."""

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.state = LandingState.COMING
        self.tier: str | None = None
        self.load_s = 0.0
        self.place_s = 0.0
        self._slots = threading.Lock()

    def land(self, place: Callable[[], None]) -> None:
        """Write some layers, unless overtaken."""
        with self._slots:
            if self.state is LandingState.COMING:
                began = time.perf_counter()
                place()
                self.place_s += time.perf_counter() - began

    def settle(self, state: LandingState, tier: str | None = None) -> bool:
        """Leave `COMING`; False where it was left before. Waits for layers that are being written."""
        with self._slots:
            if self.state is not LandingState.COMING:
                return False
            self.state, self.tier = state, tier
            return True


class Loads:
    """The loads of one question: begun at once on the loader's threads, the last segments first.

    From the end, because the pass that overtakes them computes from the front.
    """

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        segments: Sequence[Segment],
        source: BlockSource,
        place: Callable[[Segment, EncodedBlock, range], None],
    ) -> None:
        self.landings = {segment: Landing(segment) for segment in segments}
        self._source = source
        self._place = place
        self._changed = threading.Condition()
        self._failed: Future[None] | None = None
        self._told: Callable[[], None] | None = None
        self.landed_s = time.perf_counter()  # when nothing was coming any more
        self.coming = len(self.landings)
        self._futures = [pool.submit(self._load, landing) for landing in reversed(self.landings.values())]
        for future in self._futures:
            future.add_done_callback(self._ended)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing is coming any more; False after `seconds`. Raises what a load raised."""
        with self._changed:
            done = self._changed.wait_for(lambda: self.landed, seconds)
        if self._failed is not None:
            self._failed.result()
        return done

    @property
    def landed(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self.coming == 0 or self._failed is not None

    def when_landed(self, tell: Callable[[], None]) -> None:
        """Have `tell` called once, on any thread, as soon as `landed` is so; now where it is."""
        with self._changed:
            now = self.landed
            self._told = None if now else tell
        if now:
            tell()

    def overtake(self, landing: Landing) -> bool:
        """Take a segment's slots from its loader; False where its block is there already."""
        if landing.settle(LandingState.OVERTAKEN):
            self._one_less()
            return True
        return landing.state is not LandingState.PLACED

    def abandon(self) -> None:
        """From here on no thread writes to the arena. Safe to repeat."""
        for future in self._futures:
            future.cancel()
        for landing in self.landings.values():
            self.overtake(landing)

    def join(self) -> None:
        """Wait until every load has ended, abandoned ones too: then no lease is out."""
        wait(self._futures)

    def _ended(self, future: Future[None]) -> None:
        if not future.cancelled() and future.exception() is not None:
            with self._changed:
                self._failed = self._failed or future
                self._changed.notify_all()
            self._tell_landed()

    def _load(self, landing: Landing) -> None:
        if landing.state is not LandingState.COMING:
            return
        segment = landing.segment
        began = time.perf_counter()

        def on_layers(block: EncodedBlock, layers: range) -> None:
            landing.land(lambda: self._place(segment, block, layers))

        leased = self._source.load(chunk_of(segment), on_layers)
        landing.load_s = time.perf_counter() - began - landing.place_s
        if leased is None:
            settled = landing.settle(LandingState.MISSING)
        else:
            leased.release()
            settled = landing.settle(LandingState.PLACED, leased.tier)
        if settled:
            self._one_less()

    def _one_less(self) -> None:
        with self._changed:
            self.coming -= 1
            self.landed_s = time.perf_counter()
            self._changed.notify_all()
        self._tell_landed()

    def _tell_landed(self) -> None:
        with self._changed:
            tell, self._told = (self._told, None) if self.landed else (None, self._told)
        if tell is not None:
            tell()


def chunk_of(segment: Segment) -> int:
    """The chunk of a segment that comes from a block."""
    if segment.chunk is None:
        raise ValueError("only a chunk can come from a block")
    return segment.chunk
