"""Turns results into the text and HTML of the page. Everything that came out of a document or a model passes here.

Our own HTML goes through `html.escape`; running text goes through `defuse`. Gradio's sanitiser and the content security
policy stand behind both.
"""

import html
import re
from collections.abc import Mapping, Sequence

from appliance.service import Answer, DocumentEntry, DocumentSummary, IngestProgress, Source

_SNIPPET_CHARACTERS = 220
_OPEN_ENTRIES = 5  # more files than this without trouble are folded away
_JOINER = "\u2060"  # word joiner: no width, no line break
_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)|\](?=[(\[:])|[`~](?=[`~]{2,}\s*mermaid)", re.IGNORECASE)

_TIER_NAMES = {
    "gpu": "from device memory",
    "pinned": "from memory",
    "pageable": "from memory",
    "disk": "from disk",
    "computed": "computed now",
}
_STAGES = {"parse": "Reading", "embed": "Indexing", "kv": "Preparing"}


def defuse(text: str) -> str:
    """`text` as Markdown without images, named links, tags or diagrams: a joiner splits what would begin one.

    The joiner is invisible. Bold, lists and code stay, and so does a bare web address, which the theme makes
    unclickable. The same in code and in prose, so nothing depends on agreeing with the browser's parser.
    """
    return _ACTIVE.sub(lambda match: match.group() + _JOINER, text)


def plain(text: str) -> str:
    """`text` as HTML on one line (Markdown ends an HTML block at an empty line)."""
    return html.escape(" ".join(text.split()))


def count(number: int, noun: str) -> str:
    """`1 chunk`, `1,612 chunks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def size(size_bytes: int) -> str:
    """`512 B`, `3.4 MB`: three significant digits, powers of 1000."""
    value = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(seconds: float) -> str:
    """`0.08 s`, `12 s`, `3 min`, `2.5 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s" if seconds < 1 else f"{seconds:.1f} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def place(source: Source) -> str:
    """`handbook.pdf, page 3`, as plain text."""
    return source.document if source.page is None else f"{source.document}, page {source.page}"


def sources_html(sources: Sequence[Source]) -> str:
    """One card a source, best first; the whole passage opens on a click. Empty where there are none."""
    return "".join(_source_card(number, source) for number, source in enumerate(sources, start=1))


def _source_card(number: int, source: Source) -> str:
    page = "" if source.page is None else f'<span class="page">page {source.page}</span>'
    words = " ".join(source.text.split())
    snippet = words
    if len(words) > _SNIPPET_CHARACTERS:
        snippet = words[:_SNIPPET_CHARACTERS].rsplit(" ", 1)[0] + " …"
    passage = f'<p class="passage">{plain(words)}</p>' if snippet != words else ""
    more = f"<details><summary>Whole passage</summary>{passage}</details>" if passage else ""
    return (
        f'<div class="source"><div class="source-head"><span class="number">{number}</span>'
        f'<span class="name">{plain(source.document)}</span>{page}'
        f'<span class="score">score {source.score:.3f}</span></div>'
        f'<p class="snippet">{plain(snippet)}</p>{more}</div>'
    )


def sources_line(sources: Sequence[Source]) -> str:
    """`Sources: 1, 3 handbook.pdf, page 3 · 2 …` as harmless Markdown, kept under its answer in the conversation."""
    numbers: dict[str, list[str]] = {}
    for number, source in enumerate(sources, start=1):
        numbers.setdefault(place(source), []).append(str(number))
    return "Sources: " + " · ".join(f"{', '.join(held)} {escape_markdown(name)}" for name, held in numbers.items())


def escape_markdown(text: str) -> str:
    """`text` on one line with every character that Markdown reads escaped."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|~$&-])", r"\\\1", " ".join(text.split()))


def timing_line(answer: Answer) -> str:
    """`first token 0.08 s (retrieve 12 ms, load 9, place 4, compute 51) · 1,612 of 1,690 tokens reused · …`."""
    timing, tokens = answer.timing, answer.tokens
    steps = [f"{name} {timing[name]:.0f}" for name in ("retrieve", "load", "place", "compute") if name in timing]
    if steps:
        steps[0] += " ms"
    parts = []
    if "ttft" in timing:
        parts.append(f"first token {duration(timing['ttft'] / 1000)}" + (f" ({', '.join(steps)})" if steps else ""))
    if "prompt" in tokens:
        again = f", {tokens['recomputed']:,} reread" if tokens.get("recomputed") else ""
        parts.append(f"{tokens.get('reused', 0):,} of {tokens['prompt']:,} tokens reused{again}")
    parts += _tier_parts(answer.tiers)
    return " · ".join(parts)


def _tier_parts(tiers: Mapping[str, int]) -> list[str]:
    totals: dict[str, int] = {}
    for tier, chunks in tiers.items():
        label = _TIER_NAMES.get(tier, f"from {tier}")
        totals[label] = totals.get(label, 0) + chunks
    return [f"{count(chunks, 'chunk')} {label}" for label, chunks in totals.items() if chunks]


def facts_html(answer: Answer) -> str:
    """The measured facts of one answer: strategy, timing line, warnings."""
    total = answer.timing.get("total")
    spent = "" if total is None else f"whole answer {duration(total / 1000)} · "
    warnings = "".join(f'<p class="warning">{plain(warning)}</p>' for warning in answer.warnings)
    return (
        f'<div class="facts"><p class="timing">{plain(timing_line(answer))}</p>'
        f'<p class="strategy">{spent}strategy {plain(answer.strategy)}</p>{warnings}</div>'
    )


def document_state(document: DocumentSummary) -> str:
    """`ready`, or how much of the document's KV is on disk. The rest is searchable and computed when asked for."""
    if document.chunks_with_kv >= document.chunks:
        return "ready"
    return f"searchable · {document.chunks_with_kv} of {document.chunks} prepared"


def document_html(document: DocumentSummary) -> str:
    """One line of the list of documents."""
    pages = count(document.pages, "page") if document.pages else ""
    facts = [document.kind.upper(), pages, count(document.chunks, "chunk"), f"{size(document.kv_bytes)} KV"]
    state = document_state(document)
    badge = "ready" if state == "ready" else "partial"
    return (
        f'<div class="document"><span class="title">{plain(document.title)}</span>'
        f'<span class="about">{plain(" · ".join(fact for fact in facts if fact))}</span>'
        f'<span class="collection">{plain(document.collection)}</span>'
        f'<span class="badge {badge}">{plain(state)}</span></div>'
    )


def progress_html(progress: IngestProgress) -> str:
    """A bar with what is being done, how fast and how long still."""
    by_chunk = progress.chunks_total > 0
    done, total = (progress.chunks_done, progress.chunks_total) if by_chunk else (progress.done, progress.total)
    percent = 0 if total <= 0 else min(100, round(100 * done / total))
    facts = [f"{progress.done:,} of {count(progress.total, 'document')}"]
    if by_chunk:
        facts.append(f"{progress.chunks_done:,} of {count(progress.chunks_total, 'chunk')}")
    if progress.rate_per_s > 0:
        facts.append(f"{progress.rate_per_s:.1f} per second")
    if progress.left_s is not None:
        facts.append(f"{duration(progress.left_s)} left")
    stage = _STAGES.get(progress.stage, progress.stage)
    return (
        f'<div class="progress"><div class="progress-head">{plain(stage)} <b>{plain(progress.document)}</b>'
        f'<span>{percent}%</span></div><div class="bar"><div class="fill w{5 * (percent // 5)}"></div></div>'
        f"<p>{plain(' · '.join(facts))}</p></div>"
    )


def entries_html(entries: Sequence[DocumentEntry], names: Mapping[str, str]) -> str:
    """What became of each file, failures first; `names` gives the name to show for a path (uploads lie apart)."""
    failed = [_entry_line(entry, names) for entry in entries if entry.error]
    done = [_entry_line(entry, names) for entry in entries if not entry.error]
    shown = "".join(failed)
    if len(done) <= _OPEN_ENTRIES:
        return f'<ul class="entries">{shown}{"".join(done)}</ul>' if failed or done else ""
    told = f"{count(len(done), 'file')} without trouble"
    rest = f'<details class="entries"><summary>{told}</summary><ul class="entries">{"".join(done)}</ul></details>'
    return (f'<ul class="entries">{shown}</ul>' if failed else "") + rest


def attached_html(names: Sequence[str], failures: Sequence[str]) -> str:
    """`Asking about: lease.pdf`, then a line for each file that could not be read. Empty where there is nothing."""
    chips = "".join(f'<span class="chip">{plain(name)}</span>' for name in names)
    about = f'<p class="about"><span>Asking about</span> {chips}</p>' if chips else ""
    return about + "".join(f'<p class="failure">{plain(failure)}</p>' for failure in failures)


def _entry_line(entry: DocumentEntry, names: Mapping[str, str]) -> str:
    name = names.get(entry.path, entry.path.rsplit("/", 1)[-1])
    told = entry.error or (f"{entry.state}, {count(entry.chunks, 'chunk')}" if entry.chunks else entry.state)
    state = "failed" if entry.error else "done"
    return f'<li class="{state}"><b>{plain(name)}</b> {plain(told.removeprefix(name))}</li>'
