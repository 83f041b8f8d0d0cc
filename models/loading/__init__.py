"""Loading language models: which can be served, from where, and what they are."""

from models.loading.base import LanguageModel
from models.loading.families import ARCHITECTURES, ROTARY_KINDS, check_family, window_tokens
from models.loading.fingerprint import digest_fields
from models.loading.load import WEIGHTS, choose_device, load_language_model
from models.resolve import looks_like_hub_name, resolve_model

__all__ = [
    "ARCHITECTURES",
    "ROTARY_KINDS",
    "WEIGHTS",
    "LanguageModel",
    "check_family",
    "choose_device",
    "digest_fields",
    "load_language_model",
    "looks_like_hub_name",
    "resolve_model",
    "window_tokens",
]
