"""Ingesting: files become documents, documents become KV blocks."""

from appliance.ingest.base import DocumentEntry, IngestEstimate, IngestProgress, IngestReport, ProgressListener
from appliance.ingest.documents import DocumentIngest
from appliance.ingest.dry_run import estimate, open_and_estimate
from appliance.ingest.kv import KvIngest, KvWork

__all__ = [
    "DocumentEntry",
    "DocumentIngest",
    "IngestEstimate",
    "IngestProgress",
    "IngestReport",
    "KvIngest",
    "KvWork",
    "ProgressListener",
    "estimate",
    "open_and_estimate",
]
