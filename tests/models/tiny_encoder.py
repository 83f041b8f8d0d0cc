"""A tiny random BERT with a WordPiece tokenizer, as a folder that `EmbeddingModel.load` takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast


def save_tiny_encoder(folder: Path, words: Sequence[str], positions: int) -> Path:
    """Save two random layers of 32 dimensions over a vocabulary of special tokens and `words`."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]"}
    wrapped: Any = PreTrainedTokenizerFast
    wrapped(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(names),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=positions,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    return folder
