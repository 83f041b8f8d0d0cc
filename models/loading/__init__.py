"""Loading language models: which can be served, from where, and what they are."""

from models.loading.base import LanguageModel
from models.loading.families import ARCHITECTURES, ROTARY_KINDS, check_family, window_tokens
from models.loading.fingerprint import digest_fields
from models.loading.load import WEIGHTS, choose_device, load_language_model
from models.loading.random_shapes import SHAPES, load_random_model
from models.resolve import has_random_weights, looks_like_hub_name, resolve_model

__all__ = [
    "ARCHITECTURES",
    "ROTARY_KINDS",
    "SHAPES",
    "WEIGHTS",
    "LanguageModel",
    "check_family",
    "choose_device",
    "digest_fields",
    "has_random_weights",
    "load_language_model",
    "load_random_model",
    "looks_like_hub_name",
    "resolve_model",
    "window_tokens",
]
