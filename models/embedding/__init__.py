"""Embedding models: `EmbeddingModel.load(folder)` gives an `Embedding`."""

from models.embedding.base import Embedding, Vectors, WindowSettings
from models.embedding.encoder import EmbeddingModel

__all__ = ["Embedding", "EmbeddingModel", "Vectors", "WindowSettings"]
