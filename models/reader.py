"""Reading a chunk once: from token ids to an encoded block (ingest, and questions that come before it)."""

from typing import Any

import numpy as np
import torch

from models.arena import Arena
from models.capture import capture_kv
from models.errors import ModelRefused
from models.forward import contiguous_rows, run_rows
from models.loading import LanguageModel
from storage.blocks import BlockHeader, EncodedBlock, encode_block
from storage.codecs import CodecPair, find_codec
from storage.errors import BlockRefused

CONTEXTS = ("head", "alone")


class ChunkReader:
    """Computes blocks of one model. `context` says what a chunk attends to besides itself.

    `alone`: nothing (TurboRAG). `head`: the prompt's head (FusionRAG's full reuse). One chunk a pass, never padded
    into a batch: on a CPU the same ids then give the same bytes again, which is what a repair needs.
    """

    def __init__(self, model: LanguageModel, head_ids: np.ndarray, context: str, codec: str) -> None:
        if context not in CONTEXTS:
            raise ValueError(f"context {context!r} is not one of {CONTEXTS}")
        self.codec = CodecPair.named(codec)
        for name in (self.codec.keys, self.codec.values):
            find_codec(name)
        backbone: Any = model.backbone
        rows = int(backbone.get_input_embeddings().num_embeddings)
        if len(head_ids) and int(head_ids.max()) >= rows:
            raise ModelRefused(f"{model.name}: its chat template uses tokens that the model has no embeddings for")
        self.model = model
        self.context = context
        self._scratch = Arena(model.geometry, model.dtype, model.device, model.window)
        self.head_tokens = len(head_ids)
        self._scratch.reserve(self.head_tokens)
        run_rows(model, self._scratch, head_ids, contiguous_rows(0, self.head_tokens, model.device), self.head_tokens)
        self.head_keys = self._scratch.keys[:, :, : self.head_tokens].clone()
        self.head_values = self._scratch.values[:, :, : self.head_tokens].clone()

    def read(self, token_ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys before rotary and values of a chunk, `[layers, kv_heads, tokens, head_dim]` in the model's dtype.

        Raises PromptTooLong if head and chunk exceed the window, BlockRefused where there is nothing to read.
        """
        if not len(token_ids):
            raise BlockRefused("an empty chunk has no keys and values: leave it out")
        first = self.head_tokens if self.context == "head" else 0
        scratch = self.scratch(first + len(token_ids))
        if first:
            self.place_head(scratch)
        return self.read_after(first, token_ids)

    def scratch(self, tokens: int) -> Arena:
        """The arena that chunks are read in, with room for so many tokens and nothing of value in it.

        One pass at a time has it, whoever's it is. Raises PromptTooLong.
        """
        self._scratch.reserve(tokens)
        return self._scratch

    def place_head(self, arena: Arena) -> None:
        """Put the head's keys and values into an arena's first slots."""
        arena.keys[:, :, : self.head_tokens] = self.head_keys
        arena.values[:, :, : self.head_tokens] = self.head_values

    def read_after(self, first: int, token_ids: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """As `read`, at the positions `first …` over what was placed below them in `scratch`, which has the room."""
        with capture_kv(self.model.layers) as captured:
            rows = contiguous_rows(first, len(token_ids), self.model.device)
            run_rows(self.model, self._scratch, token_ids, rows, first + len(token_ids))
        return captured.stacked(self.model.geometry)

    def block(
        self,
        token_ids: np.ndarray,
        key: str,
        fingerprint: str,
        collection: str,
        codec: CodecPair | None = None,
        generation: int = 0,
    ) -> EncodedBlock:
        """The chunk's block in this codec (default: this reader's). Raises PromptTooLong or BlockRefused."""
        codec = codec or self.codec
        keys, values = self.read(token_ids)
        header = BlockHeader(
            key=key,
            fingerprint=fingerprint,
            collection=collection,
            kind="self",
            context=self.context,
            key_codec=codec.keys,
            value_codec=codec.values,
            generation=generation,
            tokens=len(token_ids),
            geometry=self.model.geometry,
        )
        return encode_block(header, keys, values)
