"""Scoring a way of putting KV together against reading everything: next-token distributions along `full`'s answer.

`full` reads the prompt and answers greedily. Any other method leaves its own keys and values in the arena, and is then
teacher-forced along that answer: one pass over the tail and the answer gives every position at once. `full` itself is
scored by the same pass over its own KV, so that equal KV gives equal numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from models.capture import capture_kv
from models.executor import Executor
from models.forward import contiguous_rows, next_token_logits, run_rows
from models.generation import generate
from models.prompt import Prompt


@dataclass(frozen=True)
class FullReading:
    """What `full` made of a prompt.

    `keys` (before rotary) and `values` of the whole prompt: `[layers, kv_heads, tokens, head_dim]`, the model's dtype.
    `answer`: its greedy ids. `log_probs`: float32 `[positions, vocabulary]`, see `answer_log_probs`.
    """

    keys: torch.Tensor
    values: torch.Tensor
    answer: tuple[int, ...]
    fed: tuple[int, ...]
    """The ids that are fed to reach every position: all of the answer but what no position follows."""
    log_probs: torch.Tensor


@dataclass(frozen=True)
class Divergence:
    """How far a method is from `full` along one answer: one KL (nats) and one agreement a position."""

    kl: tuple[float, ...]
    agrees: tuple[bool, ...]

    @property
    def mean_kl(self) -> float:
        """Mean KL(full ‖ method) over the answer's positions."""
        return sum(self.kl) / len(self.kl)

    @property
    def top1(self) -> float:
        """The share of positions whose likeliest token is the same."""
        return sum(self.agrees) / len(self.agrees)


def read_full(executor: Executor, prompt: Prompt, answer_tokens: int) -> FullReading:
    """Read the whole prompt, answer in at most `answer_tokens`; the arena holds `full`'s KV afterwards.

    An answer that ends early is scored at its end, too (that it ends there is part of it), so there is always at least
    one position. Raises PromptTooLong; ValueError for less than one token.
    """
    if answer_tokens < 1:
        raise ValueError(f"answer_tokens is {answer_tokens}: score at least 1")
    model, arena = executor.model, executor.arena
    arena.reserve(prompt.tokens + answer_tokens)
    with capture_kv(model.layers) as captured:
        hidden = run_rows(model, arena, prompt.ids(), contiguous_rows(0, prompt.tokens, model.device), prompt.tokens)
    keys, values = captured.stacked(model.geometry)
    answer = tuple(generate(executor, next_token_logits(model, hidden), prompt.tokens, answer_tokens))
    fed = answer[: answer_tokens - 1]
    return FullReading(keys, values, answer, fed, answer_log_probs(executor, prompt, fed))


def answer_log_probs(executor: Executor, prompt: Prompt, fed: Sequence[int]) -> torch.Tensor:
    """Log-probabilities float32 `[1 + fed, vocabulary]`: row i is what follows the prompt and i ids of the answer.

    The arena holds the KV of everything before the tail, from whatever source, and room for the answer; tail and
    answer are computed over it, in one pass.
    """
    model = executor.model
    first = prompt.tokens - len(prompt.tail)
    ids = np.concatenate([prompt.tail, np.asarray(fed, dtype=prompt.tail.dtype)])
    hidden = run_rows(
        model, executor.arena, ids, contiguous_rows(first, len(ids), model.device), prompt.tokens + len(fed)
    )
    with torch.inference_mode():
        logits = model.lm_head(hidden[len(prompt.tail) - 1 :]).to(torch.float32)
        return torch.log_softmax(logits, dim=-1)


def divergence(full: torch.Tensor, method: torch.Tensor) -> Divergence:
    """KL(full ‖ method) and agreement of the likeliest token at each position; both `[positions, vocabulary]`.

    Raises ValueError where the shapes differ or there is no position.
    """
    if full.shape != method.shape or full.ndim != 2 or not len(full):
        raise ValueError(f"distributions of shape {tuple(full.shape)} and {tuple(method.shape)} cannot be compared")
    # Rounding alone can bring the sum of near equal distributions a hair below zero.
    kl = (full.exp() * (full - method)).sum(dim=-1).clamp_min_(0.0)
    agrees = full.argmax(dim=-1) == method.argmax(dim=-1)
    return Divergence(tuple(map(float, kl.tolist())), tuple(map(bool, agrees.tolist())))
