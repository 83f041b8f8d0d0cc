"""A greedy answer against the answers of the data: SQuAD's exact match, and the paper's F1."""

import re
import string
from collections.abc import Sequence

from appliance.benches.rouge import rouge1_f1

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = str.maketrans("", "", string.punctuation)


def f1(answer: str, gold: Sequence[str]) -> float:
    """The best ROUGE-1 F1 with any of them (FusionRAG §5.1)."""
    return max(rouge1_f1(answer, one) for one in gold)


def exact_match(answer: str, gold: Sequence[str]) -> bool:
    """Whether it is one of them, but for case, punctuation and articles (SQuAD, 2016)."""
    return plain(answer) in {plain(one) for one in gold}


def contained(answer: str, gold: Sequence[str]) -> bool:
    """Whether it contains one of them, as whole words, under the same rules."""
    said = f" {plain(answer)} "
    return any(f" {plain(one)} " in said for one in gold if plain(one))


def plain(text: str) -> str:
    """Lower case, without punctuation and articles, words one blank apart."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_MARKS)).split())
