"""A model with fewer embeddings than its tokenizer has tokens is refused by name, not by an index error."""

import json
from pathlib import Path

import pytest
import torch

from models.errors import ModelRefused
from models.loading import load_language_model
from models.prompt import PromptTemplate
from models.reader import ChunkReader
from tests.models.tiny import save_tiny_model


def test_too_few_embeddings_for_the_text(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "small", vocab_size=200)
    with pytest.raises(ModelRefused, match="small: its tokenizer goes up to token 255, the model only to 199"):
        load_language_model(folder, torch.device("cpu"))


def test_too_few_embeddings_for_the_template(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "small", vocab_size=256, bos_token_id=0, eos_token_id=0)
    model = load_language_model(folder, torch.device("cpu"))
    assert json.loads((folder / "config.json").read_text())["vocab_size"] == 256
    with pytest.raises(ModelRefused, match="small: its chat template uses tokens"):
        ChunkReader(model, PromptTemplate(model.tokenizer, model.name).head, "head", "f32")
