"""The linear layers of a loaded model as the computer runs them best, and the compiled steps between them."""

from typing import Any

import torch

from models.fused import FusedLayers, can_fuse, find_head_row
from models.packing import LinearChoice, PackedLinear, join_linears
from models.quantised import QUANTISED, Int8Linear, plain_twin


def arrange(model: Any, choice: LinearChoice, weights: str) -> FusedLayers | None:
    """Replace the linear layers of a causal model in place; the fused layers where they can be had.

    Weights quantised by us are so in every linear layer. The head decides between tokens, so it keeps 8 bits even
    where the layers have 4. On a GPU nothing is done: what quantises there did so as it loaded.
    """
    backbone = model.model
    quantised = weights in QUANTISED and next(model.parameters()).device.type == "cpu"
    with torch.inference_mode(False):
        if choice.name == "plain":
            if quantised:
                _make_plain_twins(model, weights)
            return None
        join_linears(backbone.layers, QUANTISED[weights] if quantised else PackedLinear)
        if quantised:
            model.lm_head = Int8Linear(model.lm_head, many=False)
    return FusedLayers(backbone, find_head_row(model.lm_head)) if can_fuse(backbone) else None


def _make_plain_twins(model: Any, weights: str) -> None:
    for module in list(model.model.layers.modules()):
        for name, child in list(module.named_children()):
            if type(child) is torch.nn.Linear:
                setattr(module, name, plain_twin(child, weights))
    model.lm_head = plain_twin(model.lm_head, "int8")
