"""Loading a language model from a folder: safetensors only, no remote code, nothing looked up."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from models.attention import AttentionChoice, choose_attention
from models.errors import DeviceUnavailable, ModelMissing, ModelRefused
from models.loading.arranging import arrange
from models.loading.base import LanguageModel
from models.loading.families import check_family, window_tokens
from models.loading.fingerprint import model_identity, weights_digest
from models.packing import choose_linears
from models.rotary import RotaryTables
from storage.geometry import Geometry

WEIGHTS = ("bf16", "int8", "int4")


def choose_device(asked: str) -> tuple[torch.device, str]:
    """The device and the reason for it, from `auto`, `cpu` or `cuda`. Raises DeviceUnavailable."""
    if asked == "cpu":
        return torch.device("cpu"), "asked for"
    if torch.cuda.is_available():
        return torch.device("cuda"), f"{torch.cuda.get_device_name()} found"
    if asked == "cuda":
        raise DeviceUnavailable(
            "no CUDA device can be used: install a CUDA build of torch and a driver, or --device cpu"
        )
    return torch.device("cpu"), "no CUDA device found"


def load_language_model(
    folder: Path,
    device: torch.device,
    weights: str = "bf16",
    digest_cache: Path | None = None,
    linears: str = "auto",
    attention: str = "auto",
    remember: bool = True,
) -> LanguageModel:
    """Load and check a model. Raises ModelMissing, ModelRefused or DeviceUnavailable with one line each.

    `linears` is one of models.packing.LINEARS, `attention` of models.attention.ATTENTIONS. Without `remember`
    `digest_cache` is only read.
    """
    name = folder.name
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = _read_config(folder)
    check_family(config, name)
    dtype = torch.float32 if config.dtype == torch.float32 else torch.bfloat16
    tokenizer = _read_tokenizer(folder)
    geometry = _geometry(config, name)
    precision = _precision(dtype, weights, device)
    choice = choose_linears(linears, device, dtype, weights)
    attending = choose_attention(attention, device, dtype)
    model = _load_weights(folder, dtype, device, weights, attending)
    rows = int(model.get_input_embeddings().num_embeddings)
    # Added tokens are left out: libraries add some that no text becomes (the template's are checked by the reader).
    largest = max(tokenizer.backend_tokenizer.get_vocab(with_added_tokens=False).values())
    if largest >= rows:
        raise ModelRefused(f"{name}: its tokenizer goes up to token {largest}, the model only to {rows - 1}")
    weights_bytes = sum(tensor.numel() * tensor.element_size() for tensor in model.parameters())
    fused = arrange(model, choice, weights)
    identity = model_identity(
        config.to_dict(),
        weights_digest(folder, digest_cache, remember),
        tokenizer.backend_tokenizer.to_str(),
        precision,
    )
    return LanguageModel(
        name=name,
        backbone=model.model,
        lm_head=model.lm_head,
        tokenizer=tokenizer,
        geometry=geometry,
        rotary=RotaryTables(model.model.rotary_emb, device),
        window=window_tokens(config),
        dtype=dtype,
        device=device,
        weights=weights,
        stop_ids=_stop_ids(model, tokenizer),
        identity=identity,
        weights_bytes=weights_bytes,
        linears=choice,
        attention=attending,
        fused=fused,
    )


def _geometry(config: Any, name: str) -> Geometry:
    """Raises ModelRefused for a shape that cannot be."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    try:
        return Geometry(config.num_hidden_layers, config.num_key_value_heads, head_dim)
    except ValueError as error:
        raise ModelRefused(f"{name}: {error}") from error


def _read_config(folder: Path) -> Any:
    """The configuration. transformers itself refuses unknown model types; its text is cut to one line."""
    if not (folder / "config.json").is_file():
        raise ModelMissing(f"{folder}: no model folder with a config.json: name one with --model")
    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (ValueError, KeyError, OSError, TypeError, AttributeError) as error:
        raise ModelRefused(f"{folder.name}: its config.json cannot be read ({_first_line(error)})") from error


def _read_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    if not (folder / "tokenizer.json").is_file():
        raise ModelRefused(f"{folder.name}: no tokenizer.json in the folder: save the model with its fast tokenizer")
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises nothing narrower for a torn file
        raise ModelRefused(f"{folder.name}: its tokenizer cannot be read ({_first_line(error)})") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise ModelRefused(f"{folder.name}: its tokenizer is not a fast one: save the model with its fast tokenizer")
    return tokenizer


def _precision(dtype: torch.dtype, weights: str, device: torch.device) -> tuple[str, str]:
    """What the fingerprint says of both. Raises ModelRefused for unknown weights."""
    if weights not in WEIGHTS:
        raise ModelRefused(f"weights {weights!r} are unknown: choose one of {', '.join(WEIGHTS)}")
    # int8 and int4 are one thing on a GPU (bitsandbytes) and another on a CPU (models/quantised.py).
    return str(dtype), weights if weights == "bf16" or device.type == "cuda" else f"{weights}-cpu"


def _load_weights(
    folder: Path, dtype: torch.dtype, device: torch.device, weights: str, attention: AttentionChoice
) -> Any:
    options: dict[str, Any] = {"dtype": dtype}
    if weights != "bf16" and device.type == "cuda":
        from transformers import BitsAndBytesConfig

        quantised: Any = BitsAndBytesConfig
        four_bit = quantised(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=dtype, bnb_4bit_use_double_quant=True
        )
        options["quantization_config"] = four_bit if weights == "int4" else quantised(load_in_8bit=True)
        options["device_map"] = {"": device}
    loader: Any = AutoModelForCausalLM
    try:
        model, report = loader.from_pretrained(
            folder,
            attn_implementation=attention.implementation,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError, SafetensorError) as error:
        raise ModelMissing(f"{folder.name}: its weights cannot be loaded ({_first_line(error)})") from error
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would fill them with random numbers
        raise ModelMissing(f"{folder.name}: lacks {len(missing)} weights ({missing[0]}, …): fetch the model again")
    return (model if "device_map" in options else model.to(device)).eval().requires_grad_(False)


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0][:300] if text else type(error).__name__


def _stop_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    """Tokens that end an answer: those of the generation settings and the tokenizer's own."""
    named = model.generation_config.eos_token_id
    found = set(named if isinstance(named, list) else [named]) | {tokenizer.eos_token_id}
    return frozenset(int(token) for token in found if token is not None)
