"""A tokenizer for random weights: a real one cut to the vocabulary, or one token a byte. Nothing is downloaded."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from models.errors import ModelMissing, ModelRefused

_FIRST, _BEGIN, _END = "<s>", "<|im_start|>", "<|im_end|>"
_CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def random_tokenizer(vocabulary: int, folder: Path | None) -> PreTrainedTokenizerFast:
    """The byte-pair tokenizer in `folder` (chat template included) without the tokens at or above `vocabulary`.

    About as many tokens a word as a real model, which the times depend on. Without a folder, or where fewer tokens are
    wanted than it has bytes and control tokens: one token a byte. Raises ModelMissing, ModelRefused.
    """
    if folder is None:
        return _bytes_tokenizer()
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise ModelMissing(f"{folder}: holds no tokenizer.json for random weights: run installer/run.sh once")
    description = json.loads(file.read_text(encoding="utf-8"))
    if description["model"]["type"] != "BPE":
        raise ModelRefused(f"{folder}: its tokenizer is no byte-pair encoding and cannot be cut to {vocabulary} tokens")
    smallest = len(description["added_tokens"]) + len(pre_tokenizers.ByteLevel.alphabet())
    if vocabulary < smallest:
        return _bytes_tokenizer()
    fast = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    cut: Any = PreTrainedTokenizerFast
    tokenizer: PreTrainedTokenizerFast = cut(
        tokenizer_object=Tokenizer.from_str(json.dumps(_cut(description, vocabulary))),
        bos_token=fast.bos_token,
        eos_token=fast.eos_token,
    )
    tokenizer.chat_template = fast.chat_template
    if len(tokenizer) > vocabulary:
        raise ModelRefused(f"{folder}: its control tokens do not fit {vocabulary} tokens: use another tokenizer")
    return tokenizer


def _cut(description: dict[str, Any], vocabulary: int) -> dict[str, Any]:
    """Drop the tokens from `vocabulary` on, and the merges that make or need them."""
    model = description["model"]
    kept = {token: index for token, index in model["vocab"].items() if index < vocabulary}
    pairs = [tuple(merge.split(" ", 1)) if isinstance(merge, str) else tuple(merge) for merge in model["merges"]]
    merges = [list(pair) for pair in pairs if {*pair, "".join(pair)} <= kept.keys()]
    added = [token for token in description["added_tokens"] if token["id"] < vocabulary]
    return {**description, "added_tokens": added, "model": {**model, "vocab": kept, "merges": merges}}


def _bytes_tokenizer() -> PreTrainedTokenizerFast:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: index for index, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    maker: Any = PreTrainedTokenizerFast
    fast: PreTrainedTokenizerFast = maker(
        tokenizer_object=tokenizer, bos_token=_FIRST, eos_token=_END, additional_special_tokens=[_BEGIN]
    )
    fast.chat_template = _CHAT_TEMPLATE
    return fast
