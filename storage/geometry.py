"""The shape of a model's KV, and nothing else of the model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Geometry:
    """KV of n tokens has the shape `[layers, kv_heads, n, head_dim]`, always in this order."""

    layers: int
    kv_heads: int
    head_dim: int

    def __post_init__(self) -> None:
        if min(self.layers, self.kv_heads, self.head_dim) < 1:
            raise ValueError(f"KV geometry {self} has an empty axis")
        if self.head_dim % 8:
            # Scales are float32 and codes are packed along head_dim: a multiple of 8 keeps every part aligned.
            raise ValueError(f"head_dim {self.head_dim} is not a multiple of 8; this model's KV cannot be stored")

    def elements(self, tokens: int) -> int:
        """Elements of the keys (or the values) of so many tokens."""
        return self.layers * self.kv_heads * tokens * self.head_dim
