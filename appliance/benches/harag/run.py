"""Running the bench, step by step: corpus, hotness, KV sets, times, answers."""

from collections.abc import Sequence
from dataclasses import replace

from appliance.benches.base import Progress, check_folder, no_progress
from appliance.benches.corpus import publish_corpus
from appliance.benches.datasets import BenchDocument, QuestionSet, read_question_set
from appliance.benches.harag.base import HaragBenchSettings
from appliance.benches.harag.dump import dump_run
from appliance.benches.harag.facts import Prepared
from appliance.benches.harag.figures import save_figures
from appliance.benches.harag.kv_sets import choose_profile, kv_sets
from appliance.benches.harag.limits import CorpusLimit, most_tokens
from appliance.benches.harag.measure import ask_all, warm_up
from appliance.benches.harag.quality import FIGURE_QUESTIONS, answer_all
from appliance.benches.harag.result import HaragResult, results_of
from appliance.benches.harag.stores import check_room, need_bytes, store_sets
from appliance.benches.harag.systems import SystemMaker
from appliance.benches.harag.turborag import TurboRag
from appliance.benches.harag.workload import mix_evenly, retrieve_all, split_questions
from appliance.chunking import split_into_chunks
from appliance.engine import Engine, open_engine
from appliance.parsing import ParsedDocument
from appliance.retrieval import Retriever
from appliance.settings import Settings
from models.resolve import has_random_weights
from storage.catalog import Catalog
from storage.home import Home
from storage.lock import HomeLock
from storage.scratch import scratch_folder


def run_harag_bench(settings: Settings, bench: HaragBenchSettings, progress: Progress = no_progress) -> HaragResult:
    """Run it; everything it stores is removed afterwards. Raises BenchRefused, and what models and disk raise."""
    data = [read_question_set(path) for path in bench.data]
    check_folder(bench.plots, "--plots")
    user = Home(settings.home)
    timing_alone = has_random_weights(settings.model)
    with scratch_folder(user) as root:
        home = Home(root / "home")
        home.create()
        engine = open_engine(
            replace(settings, home=home.root, chunk_tokens=bench.chunk_tokens), for_timing=timing_alone
        )
        try:
            engine.warm()
            limit = most_tokens(engine, home, bench) if timing_alone else CorpusLimit()
            mixed = mix_evenly(data, bench.chunks, lambda each: _cut(engine, each, bench.chunk_tokens), limit.tokens)
            with HomeLock(home), Catalog.open(home) as catalog:
                return _run(engine, user, home, catalog, bench, mixed, limit, progress)
        finally:
            engine.close()


def _run(
    engine: Engine,
    user: Home,
    home: Home,
    catalog: Catalog,
    bench: HaragBenchSettings,
    mixed: QuestionSet,
    limit: CorpusLimit,
    progress: Progress,
) -> HaragResult:
    halves = split_questions(mixed.questions, bench.questions)
    starts = engine.template.token_starts
    corpus = publish_corpus(catalog, engine.embedding, mixed, starts, bench.chunk_tokens, progress)
    retriever = Retriever(catalog, engine.embedding)
    workload = retrieve_all(engine, catalog, retriever, corpus, halves, bench.top_k, progress)
    chosen = choose_profile(engine, user, workload, bench, limit.timing_alone, progress)
    sets = kv_sets(workload, chosen.profile, bench)
    check_room(home, need_bytes(engine, workload.ids, sets))
    stored = store_sets(engine, home, workload.ids, sets, progress)
    maker = SystemMaker(engine, home, catalog, stored, workload.ranked())
    prepared = Prepared(bench, engine, home, mixed, workload, chosen, sets, stored, maker, limit)
    turborag = TurboRag(engine.reader, home.blocks, stored.rows["bf16"])
    warm_up(engine, workload, maker, turborag, sets)
    systems = [maker.measured(spec, bench) for spec in bench.systems]
    asked = ask_all(engine, retriever, corpus.collection_id, workload, systems, bench.top_k, progress, maker.touch)
    to_answer = () if limit.timing_alone else asked[: bench.answers]
    drawn = FIGURE_QUESTIONS if bench.plots is not None else 0
    from_disk = {name: maker.from_disk(name) for name in sets}
    answered = answer_all(engine, turborag, from_disk, workload, to_answer, drawn, progress)
    retrieve_ms = sum(one.retrieve_ms for one in asked) / len(asked)
    facts = prepared.facts(retrieve_ms, len(answered))
    result = HaragResult(results_of(bench.systems, asked, answered), facts, prepared.notes())
    if bench.dump is not None:
        dump_run(bench.dump, engine, result, workload, sets, asked, answered)
    if bench.plots is not None:
        save_figures(bench.plots, result, asked, answered)
    return result


def _cut(engine: Engine, document: BenchDocument, chunk_tokens: int) -> Sequence[int]:
    """The tokens of each of a document's chunks, as publishing will cut it."""
    template = engine.template
    parsed = ParsedDocument(title=document.title, kind="txt", text=document.text)
    spans = split_into_chunks(parsed, template.token_starts(document.text), chunk_tokens)
    return [len(template.chunk(document.title, document.text[span.start : span.end])) for span in spans]
