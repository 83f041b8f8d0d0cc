"""Neighbours: which chunks each chunk is read behind (FusionRAG, offline stage), and the job that does it."""

from appliance.neighbours.base import NearPlan, NeighbourChooser, NeighbourSettings, Place
from appliance.neighbours.document import DocumentChooser
from appliance.neighbours.embedding import EmbeddingChooser
from appliance.neighbours.plans import CHOOSERS, NearPlans
from appliance.neighbours.work import Neighbouring, NeighbourWork, neighbour_job

__all__ = [
    "CHOOSERS",
    "DocumentChooser",
    "EmbeddingChooser",
    "NearPlan",
    "NearPlans",
    "NeighbourChooser",
    "NeighbourSettings",
    "NeighbourWork",
    "Neighbouring",
    "Place",
    "neighbour_job",
]
