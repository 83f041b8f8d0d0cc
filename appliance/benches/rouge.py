"""ROUGE-1 and ROUGE-L F1 of two texts: words, lower-cased, no stemming (Lin, 2004)."""

import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+")


def rouge1_f1(candidate: str, reference: str) -> float:
    """Harmonic mean of precision and recall of single words, each counted as often as it stands in both."""
    ours, theirs = _words(candidate), _words(reference)
    return _f1((Counter(ours) & Counter(theirs)).total(), len(ours), len(theirs))


def rouge_l_f1(candidate: str, reference: str) -> float:
    """The same of the longest common subsequence of words."""
    ours, theirs = _words(candidate), _words(reference)
    return _f1(_longest_common(ours, theirs), len(ours), len(theirs))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _f1(common: int, ours: int, theirs: int) -> float:
    """Two texts without words agree; a text without words and one with words do not."""
    return 2 * common / (ours + theirs) if ours + theirs else 1.0


def _longest_common(ours: Sequence[str], theirs: Sequence[str]) -> int:
    lengths = [0] * (len(theirs) + 1)
    for word in ours:
        before = 0
        for place, other in enumerate(theirs, start=1):
            above = lengths[place]
            lengths[place] = before + 1 if word == other else max(above, lengths[place - 1])
            before = above
    return lengths[-1]
