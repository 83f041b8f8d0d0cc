"""FusionRAG's query-guided selection (arXiv 2601.12904, §4.2): the tokens the question itself looks at.

The question's queries against the chunks' keys, summed over heads and question tokens; the highest are critical.
Three ways, by what the lab found (docs/benchmarks.md): `paper` as the authors' code has it, `last` and `spread` without
rotary, which do not depend on where a chunk stands and whose pass over the question needs no block.
"""

import numpy as np
import torch

from models.arena import Arena
from models.capture import capture_queries
from models.forward import contiguous_rows, run_rows
from models.rotary import rotate, unrotate
from models.selection.base import Selected, Selector, Stitched, highest
from models.selection.first_tokens import first_tokens_mask

EVERY_LAYERS = 3
FIRST_TOKENS = 8


class PaperSelect(Selector):
    """The question over the stitched KV, rotary, keys at local positions, one softmax a chunk, the last layer."""

    def choose(self, stitched: Stitched, prepared: torch.Tensor | None) -> Selected:
        model, last = stitched.model, stitched.model.geometry.layers - 1
        question = stitched.prompt.question
        queries = _question_queries(stitched, stitched.arena, stitched.end, [last])
        cos, sin = model.rotary.upto(stitched.prompt.tokens)
        where = slice(stitched.end, stitched.end + len(question))
        turned = rotate(queries.to(torch.float32), cos[where], sin[where])
        parts = []
        for start, chunk in zip(stitched.starts, stitched.prompt.chunks, strict=True):
            plain = _plain_keys(stitched, [last], start, start + len(chunk))
            local = slice(stitched.first, stitched.first + len(chunk))
            parts.append(_mass(turned, rotate(plain, cos[local], sin[local])))
        return Selected(highest(np.concatenate(parts), stitched))


class LastLayer(Selector):
    """The question alone after the head, no rotary, one softmax over all chunks, the last layer."""

    forced_tokens = 0

    def layers(self, count: int) -> list[int]:
        """The layers whose attention is summed, of `count`."""
        return [count - 1]

    def prepare(self, stitched: Stitched) -> torch.Tensor:
        """The question's queries before rotary, `[layers, heads, question tokens, head_dim]`."""
        scratch, first = stitched.scratch, stitched.first
        scratch.reserve(first + len(stitched.prompt.question))
        scratch.keys[:, :, :first] = stitched.head_keys
        scratch.values[:, :, :first] = stitched.head_values
        return _question_queries(stitched, scratch, first, self.layers(stitched.model.geometry.layers))

    def choose(self, stitched: Stitched, prepared: torch.Tensor | None) -> Selected:
        layers = self.layers(stitched.model.geometry.layers)
        queries = self.prepare(stitched) if prepared is None else prepared
        scores = _mass(queries.to(torch.float32), _plain_keys(stitched, layers, stitched.first, stitched.end))
        forced = first_tokens_mask(stitched, self.forced_tokens) if self.forced_tokens else None
        return Selected(highest(scores, stitched, forced))


class SpreadLayers(LastLayer):
    """As `last`, over every third layer, and the first tokens of each chunk."""

    forced_tokens = FIRST_TOKENS

    def layers(self, count: int) -> list[int]:
        return list(range(count - 1, -1, -EVERY_LAYERS))[::-1]


SELECTS: dict[str, type[Selector]] = {"paper": PaperSelect, "last": LastLayer, "spread": SpreadLayers}
"""The ways of `--select`."""


def query_guided(select: str, ratio: float) -> Selector:
    """The selector of this name. Raises KeyError."""
    return SELECTS[select](ratio)


def _question_queries(stitched: Stitched, arena: Arena, first: int, layers: list[int]) -> torch.Tensor:
    """Queries before rotary of the question's tokens at positions `first …` over what the arena holds below."""
    model, question = stitched.model, stitched.prompt.question
    geometry = model.geometry
    rows = contiguous_rows(first, len(question), model.device)
    with capture_queries(model.layers, model.heads, geometry.head_dim) as captured:
        run_rows(model, arena, question, rows, first + len(question))
    return torch.stack([captured[layer] for layer in layers])


def _plain_keys(stitched: Stitched, layers: list[int], start: int, end: int) -> torch.Tensor:
    """Keys before rotary of slots `[start, end)`, float32 `[layers, kv_heads, tokens, head_dim]`."""
    cos, sin = stitched.model.rotary.upto(end)
    keys = stitched.arena.keys[layers, :, start:end].to(torch.float32)
    return unrotate(keys, cos[start:end], sin[start:end])


def _mass(queries: torch.Tensor, keys: torch.Tensor) -> np.ndarray:
    """Attention that each key gets, float32 `[tokens]`: softmax over the keys, summed over layers, heads and queries.

    `queries` `[layers, heads, questions, head_dim]`, `keys` `[layers, kv_heads, tokens, head_dim]`, both float32.
    """
    layers, heads, count, head_dim = queries.shape
    kv_heads = keys.shape[1]
    folded = queries.reshape(layers, kv_heads, heads // kv_heads * count, head_dim) * head_dim**-0.5
    weights = torch.softmax(torch.matmul(folded, keys.transpose(2, 3)), dim=-1)
    summed: np.ndarray = weights.sum(dim=(0, 1, 2)).cpu().numpy()
    return summed
