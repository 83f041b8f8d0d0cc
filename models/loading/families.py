"""Which models the appliance can serve, and how long a prompt they take."""

from typing import Any

from models.errors import ModelRefused

ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")  # Qwen2.5 calls itself qwen2
ROTARY_KINDS = ("default", "linear", "llama3", "yarn")


def check_family(config: Any, name: str) -> None:
    """Raises ModelRefused naming what cannot be served.

    A key's rotation must depend on its own position alone: then a stored key can be placed anywhere. Dynamic NTK and
    longrope rescale with the length of the prompt, ALiBi has no rotation at all.
    """
    if config.model_type not in ARCHITECTURES:
        raise ModelRefused(f"{name}: architecture {config.model_type!r} is not supported: use one of {ARCHITECTURES}")
    rotary = getattr(config, "rope_parameters", None)
    per_layer = isinstance(rotary, dict) and any(isinstance(value, dict) for value in rotary.values())
    if not isinstance(rotary, dict) or "rope_type" not in rotary or per_layer:
        raise ModelRefused(f"{name}: no single rotary embedding for all layers; stored keys cannot be moved")
    kind = rotary["rope_type"]
    if kind not in ROTARY_KINDS:
        raise ModelRefused(f"{name}: rotary kind {kind!r} cannot be moved: it must be one of {ROTARY_KINDS}")
    if float(rotary.get("partial_rotary_factor") or 1.0) != 1.0:
        raise ModelRefused(f"{name}: partial rotary embedding is not supported: use a model that rotates whole heads")


def window_tokens(config: Any) -> int:
    """The longest prompt: the smaller of maximum positions and a sliding window that is in use."""
    window = int(config.max_position_embeddings)
    sliding = getattr(config, "sliding_window", None)
    if sliding and getattr(config, "use_sliding_window", True):
        window = min(window, int(sliding))
    return window
