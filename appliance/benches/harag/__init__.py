"""`appliance bench harag`: HA-RAG in the paper's own experiments, against TurboRAG (issue 3, items 11 and 12)."""

from appliance.benches.harag.base import HaragBenchSettings
from appliance.benches.harag.result import HaragResult
from appliance.benches.harag.run import run_harag_bench

__all__ = ["HaragBenchSettings", "HaragResult", "run_harag_bench"]
