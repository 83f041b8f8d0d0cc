"""The arena: a question's own keys and values, where slot index is position (DESIGN.md §3)."""

from typing import Any

import torch
from transformers.cache_utils import Cache

from models.attention import QueryRows
from models.errors import PromptTooLong
from storage.geometry import Geometry

# Room is taken in steps, so that questions of about the same length use the same memory.
GROWTH_TOKENS = 512


class Arena:
    """`keys` and `values`: `[layers, kv_heads, capacity, head_dim]`, keys after rotary.

    One arena serves one question at a time; the next question reuses its memory, because fresh memory costs more
    page faults than the placing itself. Blocks are copied in, never referenced.
    """

    def __init__(self, geometry: Geometry, dtype: torch.dtype, device: torch.device, window: int) -> None:
        self.geometry = geometry
        self.dtype = dtype
        self.device = device
        self._window = window
        self.keys = self.values = torch.empty(0, dtype=dtype, device=device)
        self.capacity = 0

    def reserve(self, tokens: int) -> None:
        """Make room for so many slots; contents are undefined afterwards if it grew. Raises PromptTooLong."""
        if tokens > self._window:
            raise PromptTooLong(
                f"{tokens} tokens do not fit the model's window of {self._window}: ask with fewer chunks"
            )
        if tokens <= self.capacity:
            return
        capacity = min(-(-tokens // GROWTH_TOKENS) * GROWTH_TOKENS, self._window)
        shape = (self.geometry.layers, self.geometry.kv_heads, capacity, self.geometry.head_dim)
        self.keys = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.values = torch.zeros(shape, dtype=self.dtype, device=self.device)
        self.capacity = capacity


class ArenaCache(Cache):
    """What a forward pass sees of the arena: writes its own rows, reads every slot below `end`."""

    def __init__(self, arena: Arena, rows: QueryRows, end: int) -> None:
        super().__init__(layers=[])
        self._arena = arena
        self._rows = rows
        self._end = end

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write `[1, kv_heads, queries, head_dim]` at the rows' positions; return all slots `[1, kv_heads, end, …]`."""
        keys, values = self._arena.keys[layer_idx], self._arena.values[layer_idx]
        if self._rows.first is None:
            keys.index_copy_(1, self._rows.positions, key_states[0])
            values.index_copy_(1, self._rows.positions, value_states[0])
        else:
            last = self._rows.first + key_states.shape[2]
            keys[:, self._rows.first : last].copy_(key_states[0])
            values[:, self._rows.first : last].copy_(value_states[0])
        return keys[:, : self._end].unsqueeze(0), values[:, : self._end].unsqueeze(0)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Slots in use."""
        return self._end
