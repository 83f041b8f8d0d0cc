"""Retrieval: `Retriever(catalog, embedding).search(...)` gives `Hit`s."""

from appliance.retrieval.base import METHODS, Hit, RetrievalSettings, SearchableCatalog, text_to_embed
from appliance.retrieval.retriever import Retriever

__all__ = ["METHODS", "Hit", "RetrievalSettings", "Retriever", "SearchableCatalog", "text_to_embed"]
