"""Models of true shapes with random weights, for timing alone: `--model random:llama-2-7b` (issue 3, the GPU proof).

Hidden size, layers, heads, rotary and vocabulary are those of the published models, so times and bytes are theirs;
answers mean nothing. The weights are made on the device itself from a fixed seed: nothing is downloaded, and no host
copy of 14 GB is needed.
"""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from models.attention import choose_attention
from models.errors import DeviceUnavailable, ModelRefused
from models.loading.arranging import arrange
from models.loading.base import LanguageModel
from models.loading.families import check_family, window_tokens
from models.loading.fingerprint import model_identity
from models.loading.random_tokenizer import random_tokenizer
from models.packing import choose_linears
from models.resolve import RANDOM_PREFIX
from models.rotary import RotaryTables
from storage.geometry import Geometry

SEED = 20250901
_SPREAD = 0.02  # of the weights, as the models themselves are initialised
_SEVEN_B: dict[str, Any] = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "head_dim": 128,
    "rms_norm_eps": 1e-5,
}
SHAPES: dict[str, dict[str, Any]] = {
    "llama-2-7b": {
        **_SEVEN_B,
        "model_type": "llama",
        "vocab_size": 32000,
        "intermediate_size": 11008,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
    "mistral-7b": {
        **_SEVEN_B,
        "model_type": "mistral",
        "vocab_size": 32768,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "llama-3.1-8b": {
        **_SEVEN_B,
        "model_type": "llama",
        "vocab_size": 128256,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    },
    "tiny": {
        "model_type": "llama",
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 4096,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
"""Mistral is its version 0.3, without a sliding window; `tiny` is for tests and runs on any computer."""


def shape_named(name: str) -> dict[str, Any]:
    """The configuration of `random:NAME`. Raises ModelRefused naming those that exist."""
    shape = SHAPES.get(name.removeprefix(RANDOM_PREFIX))
    if shape is None:
        known = ", ".join(f"{RANDOM_PREFIX}{known}" for known in SHAPES)
        raise ModelRefused(f"{name}: no such shape: choose one of {known}")
    return shape


def load_random_model(
    name: str,
    device: torch.device,
    weights: str = "bf16",
    tokenizer_folder: Path | None = None,
    linears: str = "auto",
    attention: str = "auto",
    seed: int = SEED,
) -> LanguageModel:
    """Make `random:NAME` on the device, in bfloat16. Raises ModelRefused or DeviceUnavailable with one line.

    The vocabulary's first tokens are those of the tokenizer in `tokenizer_folder`, or bytes where there is none.
    """
    shape = shape_named(name)
    if weights != "bf16":
        raise ModelRefused(f"{name}: random weights are made in bf16 alone: leave --weights out")
    if device.type == "cpu" and name != f"{RANDOM_PREFIX}tiny":
        raise DeviceUnavailable(f"{name}: too large and too slow for a CPU: use --device cuda, or {RANDOM_PREFIX}tiny")
    tokenizer = random_tokenizer(int(shape["vocab_size"]), tokenizer_folder)
    options = {option: value for option, value in shape.items() if option != "model_type"}
    config = AutoConfig.for_model(
        shape["model_type"],
        **options,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=None,
        tie_word_embeddings=False,
        dtype=torch.bfloat16,
    )
    check_family(config, name)
    linear = choose_linears(linears, device, torch.bfloat16, weights)
    attending = choose_attention(attention, device, torch.bfloat16)
    model = _random_weights(config, device, attending.implementation, seed, name)
    weights_bytes = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
    fused = arrange(model, linear, weights)
    # Generators of different devices give different numbers, so the device is part of what the weights are.
    drawn = f"{name}:{seed}:{device.type}"
    return LanguageModel(
        name=name,
        backbone=model.model,
        lm_head=model.lm_head,
        tokenizer=tokenizer,
        geometry=Geometry(config.num_hidden_layers, config.num_key_value_heads, config.head_dim),
        rotary=RotaryTables(model.model.rotary_emb, device),
        window=window_tokens(config),
        dtype=torch.bfloat16,
        device=device,
        weights=weights,
        stop_ids=frozenset({int(tokenizer.eos_token_id)}),
        identity=model_identity(
            config.to_dict(), drawn, tokenizer.backend_tokenizer.to_str(), (str(torch.bfloat16), weights)
        ),
        weights_bytes=weights_bytes,
        linears=linear,
        attention=attending,
        fused=fused,
    )


def _random_weights(config: Any, device: torch.device, attention: str, seed: int, name: str) -> Any:
    """The model, built without memory and then filled on the device: weights are drawn, norms are ones."""
    maker: Any = AutoModelForCausalLM
    with torch.device("meta"):
        model = maker.from_config(config, dtype=torch.bfloat16, attn_implementation=attention)
    try:
        model.to_empty(device=device)
    except torch.OutOfMemoryError as error:
        raise DeviceUnavailable(f"{name}: does not fit the memory of {device}: choose a smaller shape") from error
    # Its buffers are computed, not drawn, and emptied with the rest.
    model.model.rotary_emb = type(model.model.rotary_emb)(config).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if "norm" in parameter_name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, _SPREAD, generator=generator)
    return model.eval().requires_grad_(False)
