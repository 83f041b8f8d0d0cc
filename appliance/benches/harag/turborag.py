"""TurboRAG as published (EMNLP 2025): one bf16 file a chunk, plain torch, transformers' own attention and cache.

Files are opened one after another with the safetensors library, whose `load_file` maps them: on a CPU the bytes come by
page faults, read ahead by the kernel, while the tensors are concatenated layer by layer. Reading each file whole first
(`safetensors.torch.load` of its bytes) was compared, eight cold files of the embedded model's shape a round: 3% to 26%
slower, its second copy costs more than the faults. All keys are rotated to their positions; the tail then runs over a
transformers DynamicCache with SDPA. Two kindnesses: the tensors are put into the cache without the copy that
`DynamicCache.update` would make, and the rotation is in float32 with as few passes as torch allows, which is faster
than the published one in the model's dtype and rounds once.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from appliance.benches.bandwidth import drop_from_page_cache
from appliance.benches.harag.base import TURBORAG, FirstToken
from models.forward import next_token_logits
from models.generation import repeats
from models.loading import LanguageModel
from models.prompt import Prompt
from models.reader import ChunkReader
from storage.catalog import BlockRow
from storage.codecs import find_codec

_LayerKV = tuple[torch.Tensor, torch.Tensor]


class TurboRag:
    """The published system over the `bf16` files of `folder`. The head's KV is kept in memory, as ours is."""

    name = TURBORAG

    def __init__(self, reader: ChunkReader, folder: Path, rows: Mapping[str, BlockRow]) -> None:
        self._model = reader.model
        self._head = [
            (reader.head_keys[layer], reader.head_values[layer]) for layer in range(reader.model.geometry.layers)
        ]
        self._folder = folder
        self._rows = rows
        codec = find_codec("bf16")
        self._key_part = codec.key_parts(reader.model.geometry, 1)[0].name
        self._value_part = codec.value_parts(reader.model.geometry, 1)[0].name

    def forget(self, keys: Sequence[str]) -> None:
        drop_from_page_cache([self._path(key) for key in keys])

    def first_token(self, prompt: Prompt, keys: Sequence[str]) -> FirstToken:
        began = time.perf_counter()
        kv = self.load(prompt, keys)
        self._model.wait()
        loaded = time.perf_counter()
        token = self._next(prompt.tail, _cache_of(kv))
        ended = time.perf_counter()
        read_bytes = sum(self._rows[key].size_bytes for key in keys)
        return FirstToken(token, (ended - began) * 1e3, (loaded - began) * 1e3, {"disk": len(keys)}, read_bytes)

    def load(self, prompt: Prompt, keys: Sequence[str]) -> list[_LayerKV]:
        """Head and chunks, each layer's keys after rotary and values `[1, kv_heads, tokens, head_dim]`."""
        files = [load_file(self._path(key), device=str(self._model.device)) for key in keys]
        first, end = len(prompt.head), prompt.tokens - len(prompt.tail)
        cos, sin = self._model.rotary.upto(end)
        found = []
        for layer, (head_keys, head_values) in enumerate(self._head):
            values = [file[f"layers.{layer}.v.{self._value_part}"] for file in files]
            chunk_keys = torch.cat([file[f"layers.{layer}.k.{self._key_part}"] for file in files], dim=1)
            keys_there = head_keys.new_empty((head_keys.shape[0], end, head_keys.shape[2]))
            keys_there[:, :first] = head_keys
            keys_there[:, first:] = _rotated(chunk_keys, cos[first:end], sin[first:end])
            values_there = torch.cat([head_values, *(value.to(head_values.dtype) for value in values)], dim=1)
            found.append((keys_there[None], values_there[None]))
        return found

    def answer(self, prompt: Prompt, kv: Sequence[_LayerKV], tokens: int) -> tuple[int, ...]:
        """Greedy ids, by the rules of `models.generation.generate`."""
        cache, told = _cache_of(kv), list[int]()
        token = self._next(prompt.tail, cache)
        while token not in self._model.stop_ids and not repeats([*told, token]):
            told.append(token)
            if len(told) == tokens:
                break
            token = self._next(np.asarray([token]), cache)
        return tuple(told)

    def log_probs(self, prompt: Prompt, kv: Sequence[_LayerKV], fed: Sequence[int]) -> torch.Tensor:
        """As `models.scoring.answer_log_probs`: float32 `[1 + fed, vocabulary]`."""
        ids = np.concatenate([prompt.tail, np.asarray(fed, dtype=prompt.tail.dtype)])
        hidden = self._run(ids, _cache_of(kv))[len(prompt.tail) - 1 :]
        with torch.inference_mode():
            return torch.log_softmax(self._model.lm_head(hidden).to(torch.float32), dim=-1)

    def _next(self, ids: np.ndarray, cache: DynamicCache) -> int:
        """The likeliest token after these."""
        return int(torch.argmax(next_token_logits(self._model, self._run(ids, cache))))

    def _run(self, ids: np.ndarray, cache: DynamicCache) -> torch.Tensor:
        """Hidden states `[ids, hidden]` of tokens after all that the cache holds."""
        with published_attention(self._model), torch.inference_mode():
            fed = torch.as_tensor(ids, dtype=torch.int64, device=self._model.device)[None]
            out = self._model.backbone(input_ids=fed, past_key_values=cache, use_cache=True)
        hidden: torch.Tensor = out.last_hidden_state[0]
        return hidden

    def _path(self, key: str) -> Path:
        return self._folder / self._rows[key].file


@contextmanager
def published_attention(model: LanguageModel) -> Iterator[None]:
    """transformers' SDPA in place of ours, over the same modules."""
    config: Any = model.backbone.config
    ours = config._attn_implementation
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation = ours


def _rotated(keys: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """As `models.rotary.rotate`, in float32, from any dtype; a third of its time on a CPU."""
    half = keys.shape[-1] // 2
    wide = keys.to(torch.float32)
    out = wide * cos
    out[..., :half].addcmul_(wide[..., half:], sin[..., :half], value=-1)
    out[..., half:].addcmul_(wide[..., :half], sin[..., half:])
    return out


def _cache_of(kv: Sequence[_LayerKV]) -> DynamicCache:
    """A cache that begins with these tensors; they are not copied."""
    cache = DynamicCache()
    for keys, values in kv:
        layer: Any = DynamicLayer()  # type: ignore[no-untyped-call]
        layer.lazy_initialization(keys, values)
        layer.keys, layer.values = keys, values
        cache.layers.append(layer)
    return cache
