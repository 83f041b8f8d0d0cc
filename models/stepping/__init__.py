"""Decoding one answer by steps of unchanging shapes, so that a GPU can replay a step as one CUDA graph.

A step is run in one of two ways, each in a file: `eager` (any device, the slow twin) and `graph` (CUDA). Its layers
are computed in one of two ways, each in a file: `modules` (transformers' own, the slow twin) and `kernels` (Triton,
where attention is by Triton). `plain` stands for no steps at all: a forward pass a token, as for any other rows.
"""

from models.stepping.base import DECODINGS, Pending, Runner, bucket_slots
from models.stepping.choosing import StepsChoice, choose_steps, steps_of
from models.stepping.eager import EagerRunner
from models.stepping.graph import MOST_GRAPHS, GraphRunner
from models.stepping.steps import Steps

__all__ = [
    "DECODINGS",
    "MOST_GRAPHS",
    "EagerRunner",
    "GraphRunner",
    "Pending",
    "Runner",
    "Steps",
    "StepsChoice",
    "bucket_slots",
    "choose_steps",
    "steps_of",
]
