"""Everything someone else needs to check the numbers (DESIGN.md §8.8)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from appliance.benches.base import dump_json
from appliance.benches.harag.base import Asked
from appliance.benches.harag.measure import prompt_of
from appliance.benches.harag.quality import Answered
from appliance.benches.harag.result import HaragResult
from appliance.benches.harag.stores import Codecs
from appliance.benches.harag.workload import Workload
from appliance.engine import Engine


def dump_run(
    folder: Path,
    engine: Engine,
    result: HaragResult,
    workload: Workload,
    sets: Mapping[str, Codecs],
    asked: Sequence[Asked],
    answered: Sequence[Answered],
) -> None:
    """Write `result`, `chunks`, `learning`, `questions` and `answers`. Raises BenchRefused."""
    dump_json(folder, "result", result.as_json())
    dump_json(folder, "chunks", _chunks(workload, sets))
    dump_json(folder, "learning", [{"question": text, "keys": workload.found[text]} for text in workload.learning])
    dump_json(folder, "questions", [_question(engine, workload, one) for one in asked])
    dump_json(folder, "answers", [asdict(one) for one in answered])


def _chunks(workload: Workload, sets: Mapping[str, Codecs]) -> list[dict[str, Any]]:
    """Where each chunk is from, what was learned of it, and how each set keeps it."""
    return [
        {
            "key": key,
            "title": chunk.title,
            "span": [chunk.start, chunk.end],
            "tokens": len(workload.ids[key]),
            "learned_uses": workload.counts.get(key, 0),
            "codecs": {name: codecs[key].name for name, codecs in sets.items()},
        }
        for chunk_id, chunk in workload.chunks.items()
        for key in [workload.keys[chunk_id]]
    ]


def _question(engine: Engine, workload: Workload, one: Asked) -> dict[str, Any]:
    """Ids, spans of the chunks `[start, end)`, and each system's first token and times, in the order of their turns."""
    prompt = prompt_of(engine, workload, one.question, one.keys[::-1])
    spans, start = [], len(prompt.head)
    for chunk in prompt.chunks:
        spans.append([start, start + len(chunk)])
        start += len(chunk)
    return {
        "question": one.question,
        "keys": one.keys,
        "token_ids": prompt.ids().tolist(),
        "chunk_spans": spans,
        "retrieve_ms": one.retrieve_ms,
        "systems": {name: {**asdict(run), "ttft_ms": one.ttft_ms(name)} for name, run in one.runs.items()},
    }
