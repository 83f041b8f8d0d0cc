"""The result for people."""

from appliance.benches.base import format_table, machine_line
from appliance.benches.harag.result import HaragResult, SystemResult

_COLUMNS = (
    *("system", "TTFT ms", "load ms", "compute ms", "speed-up", "median", "late", "max", "load", "load over fast"),
    *("GB read", "gpu", "pinned", "pageable", "disk", "top-1", "ROUGE-1"),
)


def table_of(result: HaragResult) -> str:
    """Systems, then what the numbers depend on, then the bars and notes."""
    facts, corpus, skew = result.facts, result.facts["corpus"], result.facts["skew"]
    asked = facts["questions"]
    hottest = ", ".join(f"{name} {share:.0%}" for name, share in skew["share_of_hottest"].items())
    potential = ", ".join(f"{tier} {share:.0%}" for tier, share in skew["hit_potential"].items())
    shares = ", ".join(f"{name} {share:g}%" for name, share in facts["budgets"]["shares_percent"].items())
    stored = "; ".join(f"{name} {each['bytes'] / 1e9:.2f} GB" for name, each in facts["kv_sets"].items())
    classes = [f"  {each['name']:<5}{each['codec']:<12}{each['reason']}" for each in facts["profile"]["classes"]]
    lines = [
        format_table(_COLUMNS, [_row(name, system) for name, system in result.systems.items()]),
        "",
        f"Means; speed-ups are mean over mean of TTFT over turborag (`load`: of load time), retrieval"
        f" ({facts['retrieve_ms_mean']:.1f} ms) included; {asked['measured']} questions, each"
        " through all systems in shuffled order, past the page cache;"
        f" quality of a KV set over {asked['answered']} answers (placement changes none)",
        f"corpus: {corpus['chunks']} chunks of {corpus['documents']} documents, {corpus['tokens']} tokens;"
        f" {facts['data']}; {asked['learning']} other questions learned from",
        f"skew: {skew['accesses']} accesses to {skew['distinct_chunks']} chunks; to the hottest {hottest}",
        f"learned placement could hit: {potential}; budgets: {shares} of the chunks; on disk: {stored}",
        f"profile measured, {facts['profile']['source']}:",
        *classes,
        *(
            f"{'reached' if bar.reached else 'MISSED '}  {bar.what}: {bar.value:.2f} (at least {bar.at_least:g})"
            for bar in result.bars()
        ),
        *(f"note: {note}" for note in result.notes),
        f"{facts['model']}, {facts['choices']['placer']}; {machine_line(facts['machine'])}",
    ]
    return "\n".join(lines)


def _row(name: str, system: SystemResult) -> tuple[str, ...]:
    return (
        name,
        f"{system.ttft_ms_mean:.1f}",
        f"{system.load_ms_mean:.1f}",
        f"{system.compute_ms_mean:.1f}",
        f"{system.speedup_mean:.2f}",
        f"{system.speedup_median:.2f}",
        f"{system.speedup_late:.2f}",
        f"{system.speedup_max:.2f}",
        f"{system.load_speedup:.2f}",
        f"{system.load_speedup_fast:.2f}",
        f"{system.bytes_read / 1e9:.2f}",
        *(f"{system.hit_rate.get(tier, 0.0):.0%}" for tier in ("gpu", "pinned", "pageable", "disk")),
        "–" if system.top1 is None else f"{system.top1:.3f}",
        "–" if system.rouge1 is None else f"{system.rouge1:.3f}",
    )
