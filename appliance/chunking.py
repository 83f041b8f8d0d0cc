"""Cuts a document into chunks: whole sentences, even sizes, headings with what follows them, never across pages.

The text becomes units (sentences, or pieces of a sentence that alone is too long). Between two units stands a boundary
of some quality. From the front, each cut is put where quality and evenness together cost least.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from appliance.parsing.base import ParsedDocument
from appliance.sentences import Boundary, Unit, split_into_units

_COSTS = {
    Boundary.SECTION: 0.0,
    Boundary.PARAGRAPH: 0.10,
    Boundary.LINE: 0.18,
    Boundary.SENTENCE: 0.30,
    Boundary.WORD: 1.0,
    Boundary.CHARACTER: 1.5,
}
_ORPHANED_HEADING_COST = 2.0  # a heading at the end of a chunk, its text in the next
_TINY_REST_COST = 3.0
_EXTRA_CHUNK_COST = 0.5
_TINY_SHARE = 0.25  # of the limit


@dataclass(frozen=True)
class ChunkSpan:
    """`text[start:end]` of a document, on one page (None for kinds without pages)."""

    start: int
    end: int
    page: int | None


class TokenCounter:
    """Counts tokens between two characters of a text.

    `token_starts`: for each token of the whole text, ascending, the offset of its first character. A token that begins
    before `start` and reaches into the span counts.
    """

    def __init__(self, token_starts: Sequence[int]) -> None:
        self._starts = token_starts

    def first(self, start: int) -> int:
        """The index of the token that the character at `start` belongs to."""
        first = bisect_left(self._starts, start)
        return first - 1 if first > 0 and (first == len(self._starts) or self._starts[first] > start) else first

    def after(self, end: int) -> int:
        """The index of the first token that begins at `end` or later."""
        return bisect_left(self._starts, end)

    def count(self, start: int, end: int) -> int:
        """The number of tokens that have a part in `text[start:end]`."""
        return max(0, self.after(end) - self.first(start))

    def fitting_end(self, start: int, end: int, limit_tokens: int) -> int:
        """The furthest character up to which `text[start:end]` has at most `limit_tokens`; always beyond `start`."""
        low, high = start + 1, end
        while low < high:
            middle = (low + high + 1) // 2
            if self.count(start, middle) <= limit_tokens:
                low = middle
            else:
                high = middle - 1
        return low


def split_into_chunks(document: ParsedDocument, token_starts: Sequence[int], limit_tokens: int) -> list[ChunkSpan]:
    """Return the chunks of a document in order: without overlap, trimmed, together all that is not blank.

    A chunk has at most `limit_tokens` tokens (see `TokenCounter`), except where one character alone has more.
    Raises `ValueError` for a limit below 1.
    """
    if limit_tokens < 1:
        raise ValueError(f"limit_tokens is {limit_tokens}: it must be at least 1")
    counter = TokenCounter(token_starts)
    lines_are_real = document.kind not in {"txt", "md"}  # in these a line may be wrapped anywhere
    chunks = []
    for start, end, page in _stretches(document):
        units = list(split_into_units(document.text, start, end, lines_are_real, counter, limit_tokens))
        chunks += [ChunkSpan(first, last, page) for first, last in _group(units, counter, limit_tokens)]
    return chunks


def _stretches(document: ParsedDocument) -> Iterator[tuple[int, int, int | None]]:
    """The parts that no chunk may leave: pages, or the whole text."""
    if not document.pages:
        yield 0, len(document.text), None
    for page in document.pages:
        yield page.start, page.end, page.number


def _group(units: Sequence[Unit], counter: TokenCounter, limit_tokens: int) -> Iterator[tuple[int, int]]:
    """Join neighbouring units to chunks."""
    firsts = [counter.first(unit.start) for unit in units]
    afters = [counter.after(unit.end) for unit in units]
    begin = 0
    while begin < len(units):
        cut = len(units)
        if afters[-1] - firsts[begin] > limit_tokens:
            cut = _best_cut(units, begin, firsts, afters, limit_tokens)
        yield units[begin].start, units[cut - 1].end
        begin = cut


def _best_cut(
    units: Sequence[Unit], begin: int, firsts: Sequence[int], afters: Sequence[int], limit_tokens: int
) -> int:
    """Return the unit before which the chunk that begins at unit `begin` should end.

    `firsts` and `afters`: for each unit the index of its first token, and of the first token after it.
    """
    rest_tokens = afters[-1] - firsts[begin]
    chunks_left = -(-rest_tokens // limit_tokens)
    even_tokens = rest_tokens / chunks_left
    best, best_cost = begin + 1, float("inf")
    for cut in range(begin + 1, len(units)):
        tokens = afters[cut - 1] - firsts[begin]
        if tokens > limit_tokens:
            break
        tokens_left = afters[-1] - firsts[cut]
        cost = abs(tokens - even_tokens) / limit_tokens + _COSTS[units[cut].boundary]
        cost += _ORPHANED_HEADING_COST if units[cut - 1].is_heading else 0.0
        cost += _TINY_REST_COST if tokens_left < _TINY_SHARE * limit_tokens else 0.0
        cost += _EXTRA_CHUNK_COST if tokens_left > (chunks_left - 1) * limit_tokens else 0.0
        if cost < best_cost:
            best, best_cost = cut, cost
    return best
