"""Alternative paths: a prefix cache's look-up that finds a chunk's block however the chunks before it vary.

Source: FusionRAG section 4.1. The exact prefix (head, c1 … ci) is tried first, then leading chunks are skipped step by
step, (head, c2 … ci) … (head, ci), until a known path matches. A block that is found has attended to nothing but the
head and chunks of the same prompt, so what it shows is never out of the question's scope.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

# Of so many least recently used paths the least worthy goes: no eviction looks at them all.
WEIGHED_PATHS = 16


@dataclass(frozen=True)
class Match:
    """One chunk of a prompt: its block, or None, and how many leading chunks were skipped to find it."""

    block: str | None
    skipped: int = 0

    @property
    def exact(self) -> bool:
        """Whether the block was computed behind just the chunks that stand before this one now."""
        return self.block is not None and not self.skipped


class PathIndex:
    """Which block was computed at the end of which path. Thread-safe, bounded; holds names alone, never a block.

    A path is the head's name and the keys of one or more chunks, in prompt order. Prefix caches can be asked the same
    way: a path is one digest, as a prefix is there. To be kept in step with the store: whoever retires a block there
    retires it here, and whoever is told by `publish` that a block has no path left may drop it.
    """

    def __init__(
        self, capacity_paths: int = 65_536, worth: Callable[[str], float] | None = None, skipping: bool = True
    ) -> None:
        """Past `capacity_paths` the least recently used path goes, or with `worth` (of a block) the least worthy of the
        longest unused. Without `skipping` only exact prefixes match: a prefix cache, to compare with."""
        if capacity_paths < 1:
            raise ValueError(f"capacity_paths is {capacity_paths}: keep at least one path")
        self._capacity_paths = capacity_paths
        self._worth = worth
        self._skipping = skipping
        self._lock = threading.Lock()
        self._blocks: OrderedDict[bytes, str] = OrderedDict()
        self._paths: dict[str, set[bytes]] = {}

    def __len__(self) -> int:
        """Known paths."""
        return len(self._blocks)

    def find(self, path: Sequence[str]) -> list[Match]:
        """A match for each chunk of a prompt, `path` being the head's name and its chunks' keys; uses what it finds.

        A chunk behind n others costs at most n + 1 digests and look-ups. Raises ValueError for an empty path.
        """
        candidates = _candidates(path) if self._skipping else ([digest] for digest in _prefixes(path))
        with self._lock:
            return [self._first_known(digests) for digests in candidates]

    def publish(self, path: Sequence[str], block: str) -> list[str]:
        """Say that `block` is what the path's last chunk gave behind all that stands before it.

        Another block of the same path is replaced. Returns the blocks that no path leads to any more, for the owner to
        retire. Raises ValueError for a path without a chunk.
        """
        if len(path) < 2:
            raise ValueError("a path is a head and at least one chunk: a head has no block")
        *_, digest = _prefixes(path)
        gone: list[str] = []
        with self._lock:
            if self._blocks.get(digest) != block:
                gone += self._forget(digest)
            self._blocks[digest] = block
            self._blocks.move_to_end(digest)
            self._paths.setdefault(block, set()).add(digest)
            while len(self._blocks) > self._capacity_paths:
                gone += self._forget(self._victim())
        return gone

    def retire(self, block: str) -> None:
        """Forget every path that leads to a block; nothing where there is none."""
        with self._lock:
            for digest in self._paths.pop(block, ()):
                del self._blocks[digest]

    def _first_known(self, digests: Sequence[bytes]) -> Match:
        for skipped, digest in enumerate(digests):
            block = self._blocks.get(digest)
            if block is not None:
                self._blocks.move_to_end(digest)
                return Match(block, skipped)
        return Match(None)

    def _victim(self) -> bytes:
        """The path to go; never the newest, which stands last."""
        if self._worth is None:
            return next(iter(self._blocks))
        weighed = islice(self._blocks.items(), min(WEIGHED_PATHS, len(self._blocks) - 1))
        worth = self._worth
        return min(weighed, key=lambda entry: worth(entry[1]))[0]

    def _forget(self, digest: bytes) -> list[str]:
        """Drop one path; its block, if that was the last that led there."""
        block = self._blocks.pop(digest, None)
        if block is None:
            return []
        paths = self._paths[block]
        paths.discard(digest)
        if paths:
            return []
        del self._paths[block]
        return [block]


def _prefixes(path: Sequence[str]) -> list[bytes]:
    """The digests of (head, c1), (head, c1, c2) …, each made of the one before it."""
    digest = _head_digest(path)
    return [digest := _longer(digest, chunk) for chunk in path[1:]]


def _candidates(path: Sequence[str]) -> list[list[bytes]]:
    """For each chunk the digests of its paths, longest first: those of the chunk before, each longer by this one."""
    head = _head_digest(path)
    candidates: list[list[bytes]] = []
    running: list[bytes] = []
    for chunk in path[1:]:
        running = [_longer(digest, chunk) for digest in (*running, head)]
        candidates.append(running)
    return candidates


def _head_digest(path: Sequence[str]) -> bytes:
    if not path:
        raise ValueError("a path begins with its head's name")
    return _longer(b"path-1", path[0])


def _longer(digest: bytes, name: str) -> bytes:
    """What goes before is of one length, so no two paths give the same bytes."""
    return hashlib.sha256(digest + name.encode()).digest()
