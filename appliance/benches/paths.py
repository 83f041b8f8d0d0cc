"""`appliance bench paths`: what alternative paths save over a prefix cache (FusionRAG section 5.3.3).

Nothing is computed by a model: prompts run over three indexes of names, and what each finds, computes and keeps is
counted. What one index finds does not hang on time, so the counts are the same on every computer.
"""

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from appliance.benches.base import BenchRefused, Progress, machine_facts, median, no_progress
from appliance.benches.corpus import TokenStarts
from appliance.benches.datasets import read_question_set
from appliance.benches.paths_result import PathsBenchResult, PathsRow
from appliance.benches.paths_workload import (
    KNOWN,
    SHARED,
    UNIQUE,
    Draw,
    Workload,
    retrieved_workload,
    simulated_workload,
)
from models.embedding import Embedding, EmbeddingModel
from storage.paths import PathIndex

PREFIX, PATHS, SINGLE = "prefix", "paths", "single"
POLICIES = (PREFIX, PATHS, SINGLE)
"""`prefix`: a prefix cache. `paths`: alternative paths, a chunk computed online kept where it was computed. `single`:
ours, every chunk computed and kept behind the head alone, so that its one path always matches."""

_HEAD = "head"
_UNBOUNDED = 1 << 40


@dataclass(frozen=True)
class PathsBenchSettings:
    """`data`: question sets to retrieve for, beside the simulated prompts; they need `embedding` and `token_starts`."""

    data: tuple[Path, ...] = ()
    draw: Draw = field(default_factory=Draw)
    embedding: Path | None = None
    token_starts: TokenStarts | None = None
    chunk_tokens: int = 256


def run_paths_bench(
    settings: PathsBenchSettings, embedding: Embedding | None = None, progress: Progress = no_progress
) -> PathsBenchResult:
    """Simulate every workload under every policy. Raises BenchRefused, and what loading the embedding model raises."""
    workloads = [simulated_workload(settings.draw)]
    if settings.data:
        sets = [read_question_set(path) for path in settings.data]
        if settings.token_starts is None or (embedding is None and settings.embedding is None):
            raise BenchRefused("retrieval needs an embedding model and a tokenizer: name both, or no --data")
        if embedding is None and settings.embedding is not None:
            embedding = EmbeddingModel.load(settings.embedding, linears="auto")
        for found in sets:
            if embedding is not None:
                parts = (found, settings.draw, embedding, settings.token_starts, settings.chunk_tokens, progress)
                workloads.append(retrieved_workload(*parts))
    rows = []
    for workload in workloads:
        for done, policy in enumerate(POLICIES, start=1):
            rows.append(simulate(workload, policy))
            progress(f"{workload.name}: {policy}", done, len(POLICIES))
    fingerprint = embedding.fingerprint if settings.data and embedding is not None else None
    return PathsBenchResult(tuple(rows), asdict(settings.draw), fingerprint, machine_facts())


def simulate(workload: Workload, policy: str) -> PathsRow:
    """Ask all prompts in order, an index without bound at hand. Raises ValueError for an unknown policy."""
    if policy not in POLICIES:
        raise ValueError(f"policy {policy!r} is not one of {', '.join(POLICIES)}")
    index = PathIndex(_UNBOUNDED, skipping=policy != PREFIX)
    seen = {chunk.key for chunk in workload.prepared}
    stored_tokens = sum(chunk.tokens for chunk in workload.prepared)
    for chunk in workload.prepared:
        index.publish((_HEAD, chunk.key), f"prepared {chunk.key}")
    exact = skipped = redundant = 0
    asked = dict.fromkeys((KNOWN, SHARED, UNIQUE), 0)
    took_us: list[float] = []
    for number, prompt in enumerate(workload.prompts):
        path = (_HEAD, *(chunk.key for chunk in prompt))
        started = time.perf_counter()
        matches = index.find(path)
        took_us.append(1e6 * (time.perf_counter() - started))
        for place, (chunk, match) in enumerate(zip(prompt, matches, strict=True)):
            asked[chunk.kind] += 1
            exact += match.exact
            skipped += match.block is not None and not match.exact
            if match.block is None:
                redundant += chunk.key in seen
                seen.add(chunk.key)
                stored_tokens += chunk.tokens
                kept = (_HEAD, chunk.key) if policy == SINGLE else path[: place + 2]
                index.publish(kept, f"{number} {place}")
    return PathsRow(
        workload=workload.name,
        policy=policy,
        questions=len(workload.prompts),
        chunks=sum(asked.values()),
        asked=asked,
        exact=exact,
        skipped=skipped,
        redundant=redundant,
        distinct=len(seen),
        stored=len(index),
        stored_tokens=stored_tokens,
        find_us=median(took_us),
    )
