"""Running the lab, step by step: questions, corpus, blocks as they are needed, every method in turns."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from appliance.benches.base import BenchRefused, Progress, machine_facts, median, no_progress
from appliance.benches.plots import save_panels
from appliance.benches.quality.base import QualityBenchSettings
from appliance.benches.quality.blocks import ChunkBlocks
from appliance.benches.quality.dump import dump_logits, dump_run
from appliance.benches.quality.measure import Lab, Measured
from appliance.benches.quality.passages import LARGEST_CORPUS, Neighbours, Passages, embed_passages
from appliance.benches.quality.result import QualityResult, rows_of
from appliance.benches.quality.sources import Shelf, open_shelf
from appliance.benches.quality_data import SEED, QualityPrompt, prompt_of, read_corpus, read_questions
from appliance.engine import Engine, open_engine
from appliance.one_line import one_line_errors
from appliance.settings import Settings
from storage.home import Home


def run_quality_bench(
    settings: Settings, bench: QualityBenchSettings, progress: Progress = no_progress
) -> QualityResult:
    """Run it; what it writes for `cold` is removed afterwards. Raises ApplianceError, and what loading raises."""
    if bench.cold:
        with one_line_errors():
            Home(settings.home).create()  # whether it can be read past the page cache is tried there
    engine = open_engine(settings)
    against = None if bench.against is None else open_engine(replace(settings, weights=bench.against))
    try:
        if engine.reader.context != "head" and bench.chooser != "none":
            raise BenchRefused("chunks are read alone here, so none has neighbours: choose --chooser none")
        for each in (engine, against):
            if each is not None:
                each.warm()
        starts = engine.template.token_starts
        asked = read_questions(bench.data, bench.questions, starts, settings.chunk_tokens)
        limit = min(bench.prompt_tokens, engine.model.window - bench.answer_tokens)
        prompts = [prompt_of(engine.template, question, limit) for question in asked]
        passages = _corpus(engine, settings, bench, prompts, progress)
        direct, device = engine.direct_reads, str(engine.model.device)
        with one_line_errors(), open_shelf(Home(settings.home), bench.cold, direct, device) as shelf:
            measured = _measure((engine, against), bench, prompts, passages, shelf, progress)
            tier = shelf.tier
    finally:
        for each in (engine, against):
            if each is not None:
                each.close()
    rows = rows_of(measured, [one.question.answers for one in prompts])
    result = QualityResult(rows, {**_facts(engine, bench, prompts, passages), "tier": tier})
    if bench.dump is not None:
        dump_run(bench.dump, result, prompts, measured)
    if bench.plots is not None:
        for name, panels in (("ratio", result.ratio_panels()), ("ttft", result.ttft_panels())):
            if panels:
                save_panels(bench.plots / f"quality-{name}.svg", panels)
    return result


def _corpus(
    engine: Engine,
    settings: Settings,
    bench: QualityBenchSettings,
    prompts: Sequence[QualityPrompt],
    progress: Progress,
) -> Passages:
    needs = bench.chooser in ("embedding", "document")
    documents = read_corpus(bench.data, engine.template.token_starts, settings.chunk_tokens) if needs else []
    wanted = [chunk for one in prompts for chunk in one.prompt.chunks]
    return embed_passages(documents, wanted, engine.template, engine.embedding, progress)


def _measure(
    engines: tuple[Engine, Engine | None],
    bench: QualityBenchSettings,
    prompts: Sequence[QualityPrompt],
    passages: Passages,
    shelf: Shelf,
    progress: Progress,
) -> list[Measured]:
    """All questions; the first is asked once more beforehand, uncounted, so that every path is warm."""
    engine, against = engines
    blocks = ChunkBlocks(engine, bench.memory_bytes)
    neighbours = Neighbours(passages, bench.chooser, bench.neighbours, bench.neighbour_tokens)
    kept = bench.dump is not None
    lab = Lab(engine, blocks, neighbours, shelf, bench.answer_tokens, bench.exact_first, kept, against)
    methods, measured = bench.methods(), list[Measured]()
    lab.ask(prompts[0].prompt, methods, answer=False)
    for number, one in enumerate(prompts):
        progress("asking", number, len(prompts))
        found = lab.ask(one.prompt, methods, number < bench.answers, number)
        if bench.dump is not None:
            found = dump_logits(bench.dump, number, found)
        measured.append(found)
    progress("asking", len(prompts), len(prompts))
    return measured


def _facts(
    engine: Engine, bench: QualityBenchSettings, prompts: Sequence[QualityPrompt], passages: Passages
) -> dict[str, Any]:
    chunks = [len(one.prompt.chunks) for one in prompts]
    return {
        "data": ", ".join(path.name for path in bench.data),
        "questions": len(prompts),
        "seed": SEED,
        "chunks": median(chunks),
        "chunks_least": min(chunks),
        "chunks_most": max(chunks),
        "chunk_tokens": median([len(chunk) for one in prompts for chunk in one.prompt.chunks]),
        "prompt_tokens": median([one.prompt.tokens for one in prompts]),
        "answer_tokens": bench.answer_tokens,
        **{name: getattr(bench, name) for name in ("chooser", "neighbours", "neighbour_tokens", "exact_first")},
        "passages": len(passages.ids),
        "passages_of_data": passages.of_documents,
        "passages_most": LARGEST_CORPUS,
        "model": engine.model.name,
        "weights": engine.choices["weights"],
        "against": bench.against or engine.choices["weights"],
        "fingerprint": engine.fingerprint,
        "context": engine.reader.context,
        **{name: engine.choices[name] for name in ("dtype", "placer", "linears", "attention", "decoding", "reads")},
        "machine": machine_facts(),
    }
