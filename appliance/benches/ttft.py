"""`appliance bench ttft`: time to first token, reading everything again against reusing KV from memory and from disk.

Every question is asked in turn of all systems, so that a slow moment of the computer hits each alike. "Disk" means
past the page cache. All times run from the question's arrival: retrieval included, model loaded.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from appliance.answering import Answerer, Question
from appliance.answers import Answer, AnswerFinished
from appliance.benches.bandwidth import disk_read_bytes_per_s, drop_from_page_cache, memory_read_bytes_per_s
from appliance.benches.base import (
    BenchRefused,
    Progress,
    dump_json,
    format_table,
    machine_facts,
    machine_line,
    median,
    no_progress,
)
from appliance.benches.sdpa import sdpa_prefill_ms
from appliance.benches.stored_corpus import BenchCorpus, open_corpus
from appliance.benches.ttft_result import Sample, TtftResult
from appliance.settings import DEFAULT_COLLECTION, Settings
from models.executor import Execution
from models.prompt import Prompt
from storage.store import BlockStore, StoreSettings

SYSTEMS = ("full", "reuse_ram", "reuse_disk")
_RAM_BYTES = 4 << 30
_ANSWER_TOKENS = 48


@dataclass(frozen=True)
class TtftBenchSettings:
    """`data`: documents or question sets; none means the sample folder. `rounds`: times each question is asked."""

    data: tuple[Path, ...] = ()
    questions: int = 5
    top_k: int = 8
    rounds: int = 5
    dump: Path | None = None

    def __post_init__(self) -> None:
        if min(self.questions, self.top_k, self.rounds) < 1:
            raise BenchRefused("questions, top-k and rounds must be at least 1")


@dataclass
class _Observed:
    prompt: Prompt | None = None
    execution: Execution | None = None


@dataclass(frozen=True)
class _System:
    name: str
    strategy: str
    store: BlockStore
    answerer: Answerer
    observed: _Observed = field(default_factory=_Observed)


def run_ttft_bench(settings: Settings, bench: TtftBenchSettings, progress: Progress = no_progress) -> TtftResult:
    """Run it. Raises BenchRefused and what ingesting and asking raise."""
    with open_corpus(settings, bench.data, bench.questions, progress) as corpus:
        systems = [_system(corpus, name) for name in SYSTEMS]
        samples: list[Sample] = []
        for number, text in enumerate(corpus.questions):
            _ask(corpus, systems[1], text, bench.top_k, 1)  # fills the memory tier; not counted
            for turn in range(bench.rounds):
                progress("asking", number * bench.rounds + turn, len(corpus.questions) * bench.rounds)
                samples.append(_sample(corpus, systems, text, bench.top_k))
        result = _result(corpus, samples, bench)
        if bench.dump is not None:
            _dump(corpus, systems, result, samples, bench)
        return result


def _system(corpus: BenchCorpus, name: str) -> _System:
    appliance, observed = corpus.appliance, _Observed()
    budget = _RAM_BYTES if name == "reuse_ram" else 0
    store = BlockStore(appliance.home, appliance.catalog, StoreSettings(budget, appliance.settings.direct_reads))

    def observe(prompt: Prompt, execution: Execution) -> None:
        observed.prompt, observed.execution = prompt, execution

    answerer = Answerer(appliance.engine, appliance.catalog, store, appliance.retriever, observe)
    return _System(name, "full" if name == "full" else "reuse", store, answerer, observed)


def _ask(corpus: BenchCorpus, system: _System, text: str, top_k: int, max_new_tokens: int) -> Answer:
    collection = corpus.appliance.catalog.collection(DEFAULT_COLLECTION)
    if system.name == "reuse_disk":
        drop_from_page_cache([system.store.path(row) for row in corpus.appliance.catalog.all_blocks()])
    question = Question(text, system.strategy, top_k, max_new_tokens, time.perf_counter())
    for event in system.answerer.answer(question, collection):
        if isinstance(event, AnswerFinished):
            return event.answer
    raise BenchRefused("an answer ended early: run the bench again")


def _sample(corpus: BenchCorpus, systems: Sequence[_System], text: str, top_k: int) -> Sample:
    """One question to every system, one after another."""
    answers = {system.name: _ask(corpus, system, text, top_k, 1) for system in systems}
    prompt = systems[0].observed.prompt
    if prompt is None:
        raise BenchRefused("an answer ended early: run the bench again")
    for name, tier in (("reuse_ram", "pageable"), ("reuse_disk", "disk")):
        if answers[name].tiers != {tier: len(prompt.chunks)}:
            raise BenchRefused(f"{name} was served from {answers[name].tiers}, not from {tier}: free some memory")
    return Sample(
        question=text,
        chunks=len(prompt.chunks),
        prompt_tokens=prompt.tokens,
        ttft_ms={name: answer.timing["ttft"] for name, answer in answers.items()},
        timing={name: answer.timing for name, answer in answers.items()},
        sdpa_ms=sdpa_prefill_ms(corpus.appliance.engine.model, prompt.ids()),
    )


def _result(corpus: BenchCorpus, samples: list[Sample], bench: TtftBenchSettings) -> TtftResult:
    engine, blocks = corpus.appliance.engine, corpus.appliance.catalog.all_blocks()
    block_bytes = median([sum(row.size_bytes for row in blocks) / len(blocks)]) * median([s.chunks for s in samples])
    memory = memory_read_bytes_per_s()
    disk = disk_read_bytes_per_s([corpus.appliance.store.path(row) for row in blocks[: bench.top_k]])
    return TtftResult.of(
        samples,
        floor_ms=(engine.model.weights_bytes / memory + block_bytes / disk) * 1e3,
        facts={
            "data": corpus.name,
            "questions": len(corpus.questions),
            "rounds": bench.rounds,
            "model": engine.model.name,
            "fingerprint": engine.fingerprint,
            "codec": engine.reader.codec.name,
            **{name: engine.choices[name] for name in ("placer", "linears", "attention", "decoding", "reads")},
            "weights_bytes": engine.model.weights_bytes,
            "block_bytes": round(block_bytes),
            "memory_gb_per_s": round(memory / 1e9, 2),
            "disk_gb_per_s": round(disk / 1e9, 2),
            "ingest_model_share": round(corpus.ingest.model_seconds / corpus.ingest.seconds, 3),
            "machine": machine_facts(),
        },
    )


def _dump(
    corpus: BenchCorpus, systems: Sequence[_System], result: TtftResult, samples: list[Sample], bench: TtftBenchSettings
) -> None:
    """Everything someone else needs to check the numbers: ids, spans, answers, logits, times."""
    if bench.dump is None:
        return
    dump_json(bench.dump, "result", result.as_json())
    dump_json(bench.dump, "samples", [asdict(sample) for sample in samples])
    asked = []
    for number, text in enumerate(corpus.questions):
        for system in systems:
            answer = _ask(corpus, system, text, bench.top_k, _ANSWER_TOKENS)
            prompt, execution = system.observed.prompt, system.observed.execution
            if prompt is None or execution is None:
                raise BenchRefused("an answer ended early: run the bench again")
            np.save(bench.dump / f"logits-{number}-{system.name}.npy", execution.logits.cpu().numpy())
            asked.append({"system": system.name, "answer_ids": list(answer.answer_ids), **_prompt_json(prompt)})
            asked[-1].update({"question": text, **answer.as_json()})
    dump_json(bench.dump, "answers", asked)


def _prompt_json(prompt: Prompt) -> dict[str, Any]:
    spans, start = [], len(prompt.head)
    for chunk in prompt.chunks:
        spans.append([start, start + len(chunk)])
        start += len(chunk)
    return {"token_ids": prompt.ids().tolist(), "chunk_spans": spans}


def table_of(result: TtftResult) -> str:
    """For people."""
    rows = [
        ["full, everything read again", f"{result.full_ms:.0f}", "1.0"],
        ["SDPA prefill by transformers, same ids", f"{result.sdpa_ms:.0f}", f"{result.full_ms / result.sdpa_ms:.2f}"],
        ["reuse, KV from memory", f"{result.reuse_ram_ms:.1f}", f"{result.ratio_ram:.1f}"],
        ["reuse, KV from cold disk", f"{result.reuse_disk_ms:.1f}", f"{result.ratio_disk:.1f}"],
        ["floor of this computer", f"{result.floor_ms:.1f}", f"{result.full_ms / result.floor_ms:.1f}"],
    ]
    facts = result.facts
    parts = "; ".join(
        f"{name}: " + ", ".join(f"{part} {value:.1f}" for part, value in result.breakdown[name].items())
        for name in ("reuse_ram", "reuse_disk")
    )
    return "\n".join(
        (
            format_table(("time to first token", "ms", "times sooner"), rows),
            "",
            f"{result.chunks} chunks, {result.prompt_tokens} prompt tokens, medians over {facts['questions']} questions"
            f" x {facts['rounds']} rounds, interleaved; {facts['data']}",
            f"parts in ms: {parts}",
            f"from disk we are at {result.reuse_disk_ms / result.floor_ms:.1f} times the floor (weights"
            f" {facts['weights_bytes'] / 1e6:.0f} MB at {facts['memory_gb_per_s']} GB/s, blocks"
            f" {facts['block_bytes'] / 1e6:.1f} MB at {facts['disk_gb_per_s']} GB/s)",
            f"ingest: {facts['ingest_model_share'] * 100:.0f}% of the time in the models",
            machine_line(facts["machine"]),
        )
    )
