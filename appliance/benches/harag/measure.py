"""The timed run: every question through every system, in an order shuffled for each question."""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from appliance.benches.base import Progress
from appliance.benches.harag.base import SEED, Asked, System
from appliance.benches.harag.stores import Codecs
from appliance.benches.harag.systems import SystemMaker
from appliance.benches.harag.workload import Workload
from appliance.engine import Engine
from appliance.retrieval import Retriever
from models.prompt import Prompt


def prompt_of(engine: Engine, workload: Workload, question: str, best_first: Sequence[str]) -> Prompt:
    """The prompt of a question over chunks by key."""
    return engine.template.prompt([workload.ids[key] for key in best_first], question)


def warm_up(
    engine: Engine, workload: Workload, maker: SystemMaker, turborag: System, sets: Mapping[str, Codecs]
) -> None:
    """Compile what every codec of every set needs, and take the arena's memory; into tiers nothing goes."""
    question = workload.learning[0]
    longest = max((prompt_of(engine, workload, text, keys).tokens for text, keys in workload.found.items()), default=0)
    engine.executor.arena.reserve(min(longest, engine.model.window))
    for name, codecs in sets.items():
        keys = list({codecs[key]: key for key in codecs}.values())
        for turn in (keys, keys):
            maker.from_disk(name).first_token(prompt_of(engine, workload, question, turn), turn[::-1])
    keys = list(workload.found[question])
    for _ in range(2):
        turborag.first_token(prompt_of(engine, workload, question, keys), keys[::-1])


def ask_all(
    engine: Engine,
    retriever: Retriever,
    collection_id: int,
    workload: Workload,
    systems: Sequence[System],
    top_k: int,
    progress: Progress,
    touch: Callable[[Sequence[str]], None] = lambda _keys: None,
) -> list[Asked]:
    """Retrieve once a question, then take every system's time to the first token, one after another.

    `touch` reads the files of all systems once, past the page cache and untimed: some systems share their files, and
    the first to read one would warm whatever caches lie below the page cache for the others.
    """
    shuffled, chooser = list(systems), random.Random(SEED)  # noqa: S311 - an order, no secret
    asked = []
    for number, text in enumerate(workload.measured):
        progress("asking", number, len(workload.measured))
        began = time.perf_counter()
        hits = retriever.search(collection_id, text, top_k)
        best_first = [workload.keys[hit.chunk_id] for hit in hits]
        prompt = prompt_of(engine, workload, text, best_first)
        retrieve_ms = (time.perf_counter() - began) * 1e3
        keys = tuple(reversed(best_first))
        one = Asked(text, keys, prompt.tokens, retrieve_ms)
        touch(keys)
        chooser.shuffle(shuffled)
        for system in shuffled:
            system.forget(keys)
            one.runs[system.name] = system.first_token(prompt, keys)
        asked.append(one)
    return asked
