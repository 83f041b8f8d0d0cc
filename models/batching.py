"""Several requests in one forward pass: each reads and writes an arena of its own."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers.cache_utils import Cache

from models.arena import Arena, ArenaCache
from models.attention import BatchRows


class BatchCache(Cache):
    """What a forward pass over `BatchRows` sees: part i writes its rows to arena i and reads its slots below end i."""

    def __init__(self, arenas: Sequence[Arena], rows: BatchRows, ends: Sequence[int]) -> None:
        """Raises ValueError where there is not one arena and one end a part, or an arena serves two."""
        super().__init__(layers=[])
        if not len(arenas) == len(rows.parts) == len(ends) == len({id(arena) for arena in arenas}):
            raise ValueError(f"{len(rows.parts)} requests need as many arenas and ends, each its own")
        parts = zip(arenas, rows.parts, ends, strict=True)
        self._parts = [ArenaCache(arena, part, end) for arena, part, end in parts]
        self._slices = rows.slices()

    def update(  # type: ignore[override]
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Write `[1, kv_heads, total_rows, head_dim]`; return all slots of each part, `[1, kv_heads, end_i, …]`."""
        pairs = [
            part.update(key_states[:, :, at], value_states[:, :, at], layer_idx)
            for part, at in zip(self._parts, self._slices, strict=True)
        ]
        return [key for key, _ in pairs], [value for _, value in pairs]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """The most slots in use by a part."""
        return max(part.get_seq_length() for part in self._parts)
