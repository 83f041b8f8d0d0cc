"""The small steps between a layer's matrix products, each in one compiled loop (CPU). Slow twin: transformers' own."""

from models.fused.head import HeadRow, find_head_row
from models.fused.layers import FusedLayers, can_fuse

__all__ = ["FusedLayers", "HeadRow", "can_fuse", "find_head_row"]
