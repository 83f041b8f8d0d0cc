"""Reading a chunk behind its neighbours: FusionRAG's similarity-guided preprocessing (arXiv 2601.12904, §4.1).

The neighbours' blocks, each computed behind the head alone, stand between the head and the chunk as they would in a
question's prompt; one full pass over the chunk attends to all of them. Its keys before rotary and its values are a
second block of the chunk, for any place in any prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from models.arena import Arena
from models.capture import capture_queries
from models.loading import LanguageModel
from models.placing import PlacerChoice
from models.reader import ChunkReader
from models.rotary import rotate
from storage.blocks import EncodedBlock
from storage.errors import BlockRefused


@dataclass(frozen=True)
class NearReading:
    """What reading a chunk behind its neighbours gave.

    `keys` before rotary and `values`, `[layers, kv_heads, tokens, head_dim]` in the model's dtype. `outside_mass`,
    float32 `[2, tokens]`: each token's attention at the last layer, summed over heads, on every key outside its own
    chunk, and on the neighbours' keys alone (Cache-Craft, SIGMOD 2025, §3; the last layer as FusionRAG's code has it).
    """

    keys: torch.Tensor
    values: torch.Tensor
    outside_mass: np.ndarray


class NeighbourReader:
    """Reads chunks of one model behind blocks of others. The result depends on nothing but the arguments.

    It shares the scratch memory of a `ChunkReader` of context `head`: one of both reads at a time.
    """

    def __init__(self, reader: ChunkReader, placers: PlacerChoice) -> None:
        """Raises ValueError for a reader of another context: then its head is not what the blocks attended to."""
        if reader.context != "head":
            raise ValueError(f"neighbours stand behind the head, and these blocks have the context {reader.context!r}")
        self._reader = reader
        self._placers = placers

    def room_tokens(self, chunk_tokens: int) -> int:
        """How many tokens of neighbours fit the window before a chunk of this length; may be negative."""
        return self._reader.model.window - self._reader.head_tokens - chunk_tokens

    def read(self, token_ids: np.ndarray, neighbours: Sequence[EncodedBlock]) -> NearReading:
        """The chunk at the positions after head and neighbours, first placed first. None at all: as `ChunkReader`.

        Raises PromptTooLong where all of them exceed the window, BlockRefused where there is nothing to read.
        """
        if not len(token_ids):
            raise BlockRefused("an empty chunk has no keys and values: leave it out")
        reader, model = self._reader, self._reader.model
        first = reader.head_tokens + sum(block.header.tokens for block in neighbours)
        scratch = reader.scratch(first + len(token_ids))
        reader.place_head(scratch)
        self._place(scratch, neighbours, first)
        # Taken from the last layer alone: that of every layer would be as large as the keys.
        last = model.layers[-1:]
        if not isinstance(last, torch.nn.ModuleList):
            raise TypeError(f"{model.name} has no layers")
        with capture_queries(last, model.heads, model.geometry.head_dim) as queries:
            keys, values = reader.read_after(first, token_ids)
        mass = outside_mass(model, scratch, queries[0], first, reader.head_tokens)
        return NearReading(keys, values, mass)

    def _place(self, scratch: Arena, neighbours: Sequence[EncodedBlock], end: int) -> None:
        cos, sin = self._reader.model.rotary.upto(end)
        start = self._reader.head_tokens
        for block in neighbours:
            self._placers.find(block, scratch).place(block, scratch, start, cos, sin)
            start += block.header.tokens


def outside_mass(model: LanguageModel, arena: Arena, queries: torch.Tensor, first: int, head_tokens: int) -> np.ndarray:
    """Attention of the rows `first …` on slots before them, float32 `[2, rows]`: on all, and on those after the head.

    `queries` are before rotary, `[heads, rows, head_dim]`; the keys are those of the arena's last layer. One softmax a
    row over every slot it may see; summed over heads, one KV head at a time, so that the scores stay small.
    """
    heads, rows, _ = queries.shape
    geometry = model.geometry
    cos, sin = model.rotary.upto(first + rows)
    turned = rotate(queries.to(torch.float32), cos[first : first + rows], sin[first : first + rows])
    attention = model.layers[-1].self_attn
    scale = float(getattr(attention, "scaling", geometry.head_dim**-0.5))
    hidden = torch.ones(rows, rows, dtype=torch.bool, device=queries.device).triu_(1)
    mass = torch.zeros(2, rows, device=queries.device)
    group = heads // geometry.kv_heads
    with torch.inference_mode():
        for kv_head in range(geometry.kv_heads):
            keys = arena.keys[-1, kv_head, : first + rows].to(torch.float32)
            scores = torch.matmul(turned[kv_head * group : (kv_head + 1) * group], keys.T).mul_(scale)
            scores[:, :, first:].masked_fill_(hidden, float("-inf"))
            weights = torch.softmax(scores, dim=-1)
            mass[0] += weights[:, :, :first].sum(dim=(0, 2))
            mass[1] += weights[:, :, head_tokens:first].sum(dim=(0, 2))
    return np.asarray(mass.cpu().numpy(), dtype=np.float32)
