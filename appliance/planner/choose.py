"""Which chunks of a prompt to load and which to compute, by measured rates.

Cake (arXiv 2410.03065, §3) computes from the front of a context while it loads from the end; for every place to divide
the prompt the two times are predicted, and the soonest wins.
"""

import math
import time
from collections.abc import Sequence

from appliance.planner.base import DISK, ChunkCost, Decision, Rates

# Less than this is within the error of any prediction: then blocks are loaded, which keeps the processor free.
WORTH_IT = 0.9
# A load has stalled when it takes this share of reading everything again longer than expected.
LATE_SHARE = 0.03
LEAST_LATE_MS = 2.0
# Nothing is planned that would have to wait longer than this share for its loads: it is computed meanwhile instead.
LONGEST_WAIT_SHARE = 0.25


def choose(
    rates: Rates, head_tokens: int, chunks: Sequence[ChunkCost], tail_tokens: int, again_tokens: int = 0
) -> Decision:
    """Decide for the chunks of a prompt, in prompt order. Takes well under a millisecond for 64 chunks.

    Where a selector computes `again_tokens` of loaded chunks again, which it finds by a pass over the question, the
    chunks that have blocks are all loaded or all computed.
    """
    began = time.perf_counter()
    total = head_tokens + sum(chunk.tokens for chunk in chunks) + tail_tokens
    full_ms = rates.pass_takes_ms(total - head_tokens, head_tokens)
    loading, absent = _suffix_load_ms(rates, chunks), _suffix_absent(chunks)
    times: list[float] = []
    passes_ms: list[float] = []
    waits_ms: list[float] = []
    ahead = 0
    for first in range(len(chunks) + 1):
        if again_tokens and 0 < first < len(chunks):
            for undivided in (times, passes_ms, waits_ms):
                undivided.append(math.inf)
        elif absent[first] == sum(chunk.tokens for chunk in chunks[first:]):
            passes_ms.append(full_ms)  # nothing to load from here on: one pass
            times.append(full_ms)
            waits_ms.append(0.0)
        else:
            rows = absent[first] + tail_tokens + again_tokens
            early_ms = rates.pass_takes_ms(tail_tokens if again_tokens else ahead, head_tokens)
            last_ms = rates.pass_takes_ms(rows, total - rows)
            passes_ms.append(early_ms + last_ms)
            times.append(max(early_ms, loading[first]) + last_ms)
            waits_ms.append(max(loading[first] - early_ms, 0.0))
        if first < len(chunks):
            ahead += chunks[first].tokens
    bold = [n for n, wait_ms in enumerate(waits_ms) if wait_ms <= LONGEST_WAIT_SHARE * full_ms]
    best = min(bold, key=times.__getitem__)
    if times[best] > WORTH_IT * times[bold[0]]:
        best = bold[0]
    if full_ms <= times[best]:
        best = len(chunks)
    computed = tuple(n for n, chunk in enumerate(chunks) if n < best or chunk.tier is None)
    read_bytes = sum(chunk.size_bytes for n, chunk in enumerate(chunks) if chunk.tier == DISK and n not in computed)
    load_ms = loading[best] if len(computed) < len(chunks) else 0.0
    return Decision(
        choice="compute" if len(computed) == len(chunks) else "split" if computed else "load",
        computed=computed,
        overtake_after_ms=waits_ms[best] + max(LEAST_LATE_MS, LATE_SHARE * full_ms),
        reason=_reason(chunks, computed, loading[0], full_ms),
        forecast_ms={"chosen": times[best], "load": times[0], "full": full_ms},
        load_ms=load_ms,
        disk_ms=read_bytes / rates.disk_bytes_per_ms,
        compute_ms=0.0 if again_tokens and best < len(chunks) else passes_ms[best],
        compute_tokens=tail_tokens + sum(chunks[n].tokens for n in computed),
        planning_ms=(time.perf_counter() - began) * 1e3,
    )


def load_takes_ms(rates: Rates, chunk: ChunkCost) -> float:
    """Time of loading and placing one block, its share of the loader's threads; 0 where there is none."""
    if chunk.tier is None:
        return 0.0
    reading = chunk.size_bytes / rates.disk_bytes_per_ms if chunk.tier == DISK else 0.0
    return rates.block_ms + reading + chunk.tokens / rates.place_tokens_per_ms


def _suffix_load_ms(rates: Rates, chunks: Sequence[ChunkCost]) -> list[float]:
    """At `i`, the time of loading the chunks from `i` on."""
    times = [0.0]
    for chunk in reversed(chunks):
        times.append(times[-1] + load_takes_ms(rates, chunk))
    return times[::-1]


def _suffix_absent(chunks: Sequence[ChunkCost]) -> list[int]:
    """At `i`, the tokens of chunks without a block from `i` on."""
    tokens = [0]
    for chunk in reversed(chunks):
        tokens.append(tokens[-1] + (chunk.tokens if chunk.tier is None else 0))
    return tokens[::-1]


def _reason(chunks: Sequence[ChunkCost], computed: tuple[int, ...], load_ms: float, full_ms: float) -> str:
    """One line for people: what was found, and the two times that were compared."""
    absent = sum(chunk.tier is None for chunk in chunks)
    if absent == len(chunks):
        return f"no chunk has KV yet: computing takes about {full_ms:.0f} ms"
    size = sum(chunk.size_bytes for chunk in chunks if chunk.tier == DISK)
    where = f"{size / 1e6:.1f} MB from disk" if size else "all in memory"
    told = f"{len(chunks) - absent} blocks, {where}: loading about {load_ms:.1f} ms, computing about {full_ms:.0f} ms"
    ahead = len(computed) - absent
    if absent:
        told += f"; {absent} without KV are computed"
    if ahead > 0 and len(computed) < len(chunks):
        told += f"; {ahead} more are computed while the others load"
    return told
