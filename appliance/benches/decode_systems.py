"""Who decodes in `appliance bench decode`: ours by each kind of weights, transformers' own `generate`, llama.cpp."""

import time
from abc import ABC, abstractmethod
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from appliance.benches.base import BenchRefused
from models.arena import Arena
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.generation import steps_ahead
from models.loading import LanguageModel
from models.stepping import EagerRunner, Steps, choose_steps


class DecodeSystem(ABC):
    """Has read a context once; `decode` then goes on from there as often as wanted."""

    name: str
    weights: str

    @abstractmethod
    def decode(self, new_tokens: int) -> tuple[float, list[int]]:
        """Seconds for so many passes of one row, each with the likeliest next token, and the tokens."""


class Ours(DecodeSystem):
    """The appliance's own passes over the arena, as `models.generation.generate` runs them, without stop tokens."""

    def __init__(self, model: LanguageModel, ids: np.ndarray, room_tokens: int, name: str, steps: Steps | None) -> None:
        """By `steps`, or by plain forward passes."""
        self.name, self.weights, self.model = name, model.weights, model
        self._steps = steps
        self._ids = ids
        self._arena = Arena(model.geometry, model.dtype, model.device, model.window)
        self._arena.reserve(len(ids) + room_tokens)
        run_rows(model, self._arena, ids, contiguous_rows(0, len(ids), model.device), len(ids))

    def decode(self, new_tokens: int) -> tuple[float, list[int]]:
        """The first pass computes the context's last token again, as the others do."""
        model, position, last = self.model, len(self._ids) - 1, int(self._ids[-1])
        began = time.perf_counter()
        if self._steps is not None:
            found = list(steps_ahead(self._steps, model, self._arena, last, position, new_tokens + 1))
        else:
            found = [last]
            for step in range(new_tokens):
                row = contiguous_rows(position + step, 1, model.device)
                hidden = run_rows(model, self._arena, found[-1:], row, position + step + 1)
                found.append(int(torch.argmax(next_token_logits(model, hidden))))
        return time.perf_counter() - began, found[1:]


def our_systems(model: LanguageModel, ids: np.ndarray, room_tokens: int, decoding: str) -> tuple[list[Ours], list[str]]:
    """Ours by the way asked for (models.stepping.DECODINGS), and notes. With `auto` every way that a GPU has, by name.

    Raises DeviceUnavailable.
    """
    choice = choose_steps(decoding, model)
    if model.device.type != "cuda" or decoding != "auto":
        name = "appliance" if decoding == "auto" else choice.name
        return [Ours(model, ids, room_tokens, name, choice.steps)], []
    ways: dict[str, Steps | None] = {choice.name: choice.steps}
    notes = [] if choice.name == "graph" else [f"{model.weights}: graph was not measured: {choice.reason}"]
    ways.setdefault("eager", Steps(model, EagerRunner("asked for")))
    ways.setdefault("plain", None)
    return [Ours(model, ids, room_tokens, name, steps) for name, steps in ways.items()], notes


class Transformers(DecodeSystem):
    """transformers' `generate`: the model's dtype, SDPA, its DynamicCache; the same folder and ids."""

    name, weights = "transformers", "bf16"

    def __init__(self, folder: Path, device: torch.device, dtype: torch.dtype, ids: np.ndarray) -> None:
        from transformers import AutoModelForCausalLM, DynamicCache

        loader: Any = AutoModelForCausalLM
        self._model = loader.from_pretrained(
            folder, dtype=dtype, attn_implementation="sdpa", local_files_only=True, trust_remote_code=False
        )
        self._model.to(device).eval()
        self._ids = torch.as_tensor(ids, dtype=torch.int64, device=device)[None]
        self._cache = DynamicCache(config=self._model.config)
        with torch.inference_mode():
            self._model.model(input_ids=self._ids, past_key_values=self._cache, use_cache=True)

    def decode(self, new_tokens: int) -> tuple[float, list[int]]:
        """The cache is cut back to the context without its last token, which the first pass computes."""
        self._cache.crop(self._ids.shape[1] - 1 - self._cache.get_seq_length())  # negative: so many fewer
        began = time.perf_counter()
        out = self._model.generate(
            self._ids,
            attention_mask=torch.ones_like(self._ids),
            past_key_values=self._cache,
            max_new_tokens=new_tokens,
            do_sample=False,
            eos_token_id=None,
            pad_token_id=0,
        )
        found: list[int] = out[0, self._ids.shape[1] :].tolist()
        return time.perf_counter() - began, found


class LlamaCpp(DecodeSystem):
    """llama.cpp by llama-cpp-python, for benches alone: as many threads as torch has, the weights of a GGUF file."""

    name = "llama.cpp"

    def __init__(self, file: Path, ids: np.ndarray, room_tokens: int) -> None:
        """Raises BenchRefused where the package or the file cannot be used."""
        try:
            llama_cpp: Any = import_module("llama_cpp")
        except ImportError as error:
            raise BenchRefused(
                "llama.cpp cannot be measured: pip install llama-cpp-python, or no --llama-cpp"
            ) from error
        if not file.is_file():
            raise BenchRefused(f"{file}: no such GGUF file: name one with --llama-cpp")
        self.weights, self._ids = file.name, [int(token) for token in ids]
        threads = torch.get_num_threads()
        try:
            self._llama: Any = llama_cpp.Llama(
                str(file), n_ctx=len(ids) + room_tokens, n_threads=threads, n_threads_batch=threads, verbose=False
            )
        except ValueError as error:
            raise BenchRefused(f"{file.name}: llama.cpp cannot load it ({error})") from error
        if self._llama.n_vocab() <= max(self._ids):
            raise BenchRefused(f"{file.name}: has {self._llama.n_vocab()} tokens: name the model's own GGUF file")
        self._llama.eval(self._ids)

    def decode(self, new_tokens: int) -> tuple[float, list[int]]:
        """Its cache is cut back as transformers' is."""
        llama, found = self._llama, self._ids[-1:]
        llama.n_tokens = len(self._ids) - 1
        began = time.perf_counter()
        for _ in range(new_tokens):
            llama.eval(found[-1:])
            found.append(int(np.argmax(np.ctypeslib.as_array(llama._ctx.get_logits(), shape=(llama.n_vocab(),)))))
        return time.perf_counter() - began, found[1:]
