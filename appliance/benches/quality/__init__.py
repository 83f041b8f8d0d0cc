"""The quality lab: `appliance bench quality`, and what the quality gate is measured with."""

from appliance.benches.quality.base import (
    CHOOSERS,
    FULL,
    NEAR,
    REFERENCE_CODEC,
    REUSE,
    SELECTING,
    Method,
    Outcome,
    QualityBenchSettings,
)
from appliance.benches.quality.blocks import ChunkBlocks
from appliance.benches.quality.measure import Lab, Measured, Reference
from appliance.benches.quality.passages import Neighbours, Passages, embed_passages
from appliance.benches.quality.result import QualityResult, QualityRow
from appliance.benches.quality.run import run_quality_bench

__all__ = [
    "CHOOSERS",
    "FULL",
    "NEAR",
    "REFERENCE_CODEC",
    "REUSE",
    "SELECTING",
    "ChunkBlocks",
    "Lab",
    "Measured",
    "Method",
    "Neighbours",
    "Outcome",
    "Passages",
    "QualityBenchSettings",
    "QualityResult",
    "QualityRow",
    "Reference",
    "embed_passages",
    "run_quality_bench",
]
