"""What the numbers of a run depend on, and what is to be said about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from appliance.benches.bandwidth import disk_read_bytes_per_s
from appliance.benches.base import machine_facts
from appliance.benches.datasets import QuestionSet
from appliance.benches.device_rates import gpu_rates
from appliance.benches.harag.base import ALL_TIERS, ANSWER_TOKENS, HARAG_MEASURED, SEED, HaragBenchSettings, SystemSpec
from appliance.benches.harag.kv_sets import ChosenProfile
from appliance.benches.harag.limits import CorpusLimit
from appliance.benches.harag.stores import Codecs, StoredSets
from appliance.benches.harag.systems import SystemMaker
from appliance.benches.harag.workload import Workload, skew_of
from appliance.engine import Engine
from storage.catalog import BlockRow
from storage.codecs import CodecPair
from storage.home import Home

_CHOICES = ("dtype", "placer", "linears", "attention", "decoding", "reads", "context")


@dataclass(frozen=True)
class Prepared:
    """A run up to the point where its questions are asked."""

    bench: HaragBenchSettings
    engine: Engine
    home: Home
    mixed: QuestionSet
    workload: Workload
    chosen: ChosenProfile
    sets: Mapping[str, Codecs]
    stored: StoredSets
    maker: SystemMaker
    limit: CorpusLimit

    def facts(self, retrieve_ms_mean: float, answered: int) -> dict[str, Any]:
        """For `--json` and the table."""
        workload, engine = self.workload, self.engine
        placement = self.maker.placement(spec_of(self.bench), self.bench)
        bf16 = [self.home.blocks / row.file for row in list(self.stored.rows["bf16"].values())[: self.bench.top_k]]
        names = sorted({row.codec for rows in self.stored.rows.values() for row in rows.values()})
        pairs = [CodecPair.named(name) for name in names]
        return {
            "data": ", ".join(path.name for path in self.bench.data),
            "questions": {
                "learning": len(workload.learning),
                "measured": len(workload.measured),
                "answered": answered,
                "answer_tokens": ANSWER_TOKENS,
            },
            "seed": SEED,
            "retrieve_ms_mean": retrieve_ms_mean,
            "top_k": self.bench.top_k,
            "chunk_tokens": self.bench.chunk_tokens,
            "corpus": {
                "documents": len(self.mixed.documents),
                "chunks": len(workload.ids),
                "tokens": sum(map(len, workload.ids.values())),
                "prepare_s": round(self.stored.seconds, 1),
            },
            "skew": skew_of(workload, placement.tier_of),
            "profile": {"source": self.chosen.source, **self.chosen.profile.as_json()},
            "preloaded": spec_of(self.bench).preloads,
            "budgets": {
                "shares_percent": dict(zip(ALL_TIERS, self.bench.budget_shares, strict=True)),
                "blocks": dict(placement.budget_blocks),
            },
            "kv_sets": {name: _set_facts(self.stored.rows[name]) for name in self.sets},
            "model": engine.model.name,
            "device": engine.model.device.type,
            "fingerprint": engine.fingerprint,
            "choices": {name: engine.choices[name] for name in _CHOICES},
            "disk_gb_per_s": round(disk_read_bytes_per_s(bf16) / 1e9, 2),
            "gpu_rates": gpu_rates(engine.model.device, engine.model.geometry, pairs),
            "machine": machine_facts(),
        }

    def notes(self) -> tuple[str, ...]:
        """What is not as asked for, in lines."""
        workload, bench = self.workload, self.bench
        found = [self.limit.reason] if self.limit.reason else []
        if len(workload.ids) < bench.chunks:
            mend = "" if self.limit.reason else ": name more data with --data"
            found.append(f"the corpus has {len(workload.ids)} chunks, not {bench.chunks}{mend}")
        if len(workload.measured) < bench.questions:
            found.append(f"the data hold {len(workload.measured)} questions to measure, not {bench.questions}")
        if self.stored.refused:
            first = next(iter(self.stored.refused.values()))
            found.append(f"{len(self.stored.refused)} blocks are kept in bf16, their codec cannot hold them: {first}")
        if spec_of(bench).preloads:
            found.append(f"{HARAG_MEASURED} begins with what was hot while learning in its tiers, the others on disk")
        if self.limit.timing_alone:
            found.append("random weights: timing alone, nothing is answered and no codec's quality is measured")
        return tuple(found)


def spec_of(bench: HaragBenchSettings) -> SystemSpec:
    """That of `harag_measured`."""
    return next(spec for spec in bench.systems if spec.name == HARAG_MEASURED)


def _set_facts(rows: Mapping[str, BlockRow]) -> dict[str, Any]:
    """Chunks, bytes and tokens of a set by codec."""
    by_codec: dict[str, list[BlockRow]] = {}
    for row in rows.values():
        by_codec.setdefault(row.codec, []).append(row)
    return {
        "bytes": sum(row.size_bytes for row in rows.values()),
        "chunks": len(rows),
        "codecs": {name: _sizes(found) for name, found in sorted(by_codec.items())},
    }


def _sizes(rows: Sequence[BlockRow]) -> dict[str, float]:
    size, tokens = sum(row.size_bytes for row in rows), sum(row.tokens for row in rows)
    return {"chunks": len(rows), "bytes": size, "bytes_per_token": round(size / tokens, 1)}
