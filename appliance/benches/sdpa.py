"""transformers' own prefill of the same ids, the yardstick for `full` (DESIGN.md §8.8).

It runs over the same modules, packed linear layers included, so that only attention and cache differ; under
`--linears plain` it is transformers through and through.
"""

import time
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from models.forward import next_token_logits
from models.loading import LanguageModel


def sdpa_prefill_ms(model: LanguageModel, token_ids: np.ndarray) -> float:
    """Milliseconds to the next-token logits with transformers' SDPA attention and its own growing cache."""
    config: Any = model.backbone.config
    ours = config._attn_implementation
    ids = torch.as_tensor(token_ids, dtype=torch.int64, device=model.device)[None]
    config._attn_implementation = "sdpa"
    try:
        began = time.perf_counter()
        with torch.inference_mode():
            out = model.backbone(input_ids=ids, past_key_values=DynamicCache(), use_cache=True)
        next_token_logits(model, out.last_hidden_state[0])
        return (time.perf_counter() - began) * 1e3
    finally:
        config._attn_implementation = ours
