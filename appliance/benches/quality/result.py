"""What `bench quality` found: rows with intervals, a table, plots."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from appliance.benches.base import format_table, machine_line
from appliance.benches.bootstrap import Interval, combined_interval, mean_interval
from appliance.benches.plots import Panel, Series
from appliance.benches.quality.base import FULL, REUSE, SELECTING, Method
from appliance.benches.quality.gold import contained, exact_match, f1
from appliance.benches.quality.measure import Measured
from appliance.benches.rouge import rouge1_f1, rouge_l_f1

METRICS = (
    *("kl", "top1", "kl_closed", "rouge1", "rouge_l", "f1", "em", "contained", "normalised_f1"),
    *("ttft_ms", "tokens_recomputed"),
)
_COLUMNS = (
    *("method", "KL", "95% interval", "closed", "95% interval", "top-1", "ROUGE-1", "ROUGE-L", "F1", "EM"),
    *("contained", "norm. F1", "TTFT ms", "recomputed"),
)


@dataclass(frozen=True)
class QualityRow:
    """One method over all questions: means of METRICS with 95% bootstrap intervals, None where there is nothing.

    `kl` (nats), `top1`, `ttft_ms`, `tokens_recomputed` over `n` questions; `rouge1`, `rouge_l` (against `full`'s
    answer) over `n_answered`; `f1`, `em`, `contained` over `n_gold`, those of them that come with an answer.
    `kl_closed` = 1 - sum of KL / sum of KL of `reuse` in the same codec. `normalised_f1` = 100 x (F1 - F1 of reuse) /
    (F1 of full - F1 of reuse) (FusionRAG, equation 11).
    """

    method: Method
    n: int
    n_answered: int
    n_gold: int
    values: dict[str, Interval | None]

    def mean(self, metric: str) -> float | None:
        """The value of one of METRICS."""
        found = self.values[metric]
        return None if found is None else found.mean

    def as_json(self) -> dict[str, Any]:
        """One row of `bench quality --json`: each metric, and `<metric>_low`, `<metric>_high`."""
        method = self.method
        told: dict[str, Any] = {
            "name": method.name,
            "select": method.select,
            "ratio": method.ratio,
            "codec": None if method.codec is None else method.codec.name,
            "n": self.n,
            "n_answered": self.n_answered,
            "n_gold": self.n_gold,
        }
        for metric in METRICS:
            found = self.values[metric]
            told[metric] = None if found is None else found.mean
            told[f"{metric}_low"] = None if found is None else found.low
            told[f"{metric}_high"] = None if found is None else found.high
        return told


@dataclass(frozen=True)
class QualityResult:
    """`facts` say what the numbers depend on."""

    rows: tuple[QualityRow, ...]
    facts: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """The object that `bench quality --json` prints."""
        return {"rows": [row.as_json() for row in self.rows], **self.facts}

    def as_table(self) -> str:
        """For people."""
        facts = self.facts
        first = self.rows[0]
        return "\n".join(
            (
                format_table(_COLUMNS, [_cells(row) for row in self.rows]),
                "",
                f"{facts['questions']} questions, {facts['chunks']:.0f} chunks ({facts['chunks_least']} to"
                f" {facts['chunks_most']}) and {facts['prompt_tokens']:.0f} prompt tokens in the middle;"
                f" {facts['data']}",
                f"KL (nats) and top-1 along full's answers of up to {facts['answer_tokens']} tokens; closed: the share"
                f" of reuse's KL that is gone; ROUGE against full's answers ({first.n_answered}), F1, EM and contained"
                f" against the data's ({first.n_gold}); blocks from {facts['tier']}",
                f"near: blocks read behind at most {facts['neighbours']} neighbours, chosen by {facts['chooser']} of"
                f" {facts['passages']} passages",
                f"{facts['model']}, weights {facts['weights']} against {facts['against']},"
                f" {machine_line(facts['machine'])}",
            )
        )

    def ratio_panels(self) -> tuple[Panel, ...]:
        """Quality against the share that is computed again."""
        lines = {(row.method.name, row.method.select, row.method.codec) for row in self.rows}
        ordered = sorted((line for line in lines if line[0] in SELECTING), key=str)
        series = []
        for line in ordered:
            rows = [row for row in self.rows if (row.method.name, row.method.select, row.method.codec) == line]
            series.append(_series(" ".join(str(part) for part in line if part), rows, "ratio"))
        series += [_series(row.method.label, [row], "ratio") for row in self.rows if row.method.name not in SELECTING]
        drawn = tuple(each for each in series if each.x)
        return (Panel("share of the chunk tokens computed again", _CLOSED, drawn),) if drawn else ()

    def ttft_panels(self) -> tuple[Panel, ...]:
        """Quality against time to first token."""
        rows = [row for row in self.rows if row.mean("kl_closed") is not None]
        if not rows:
            return ()
        series = _series("methods", rows, "ttft_ms", named=True)
        return (Panel("time to first token (ms)", _CLOSED, (series,)),)


_CLOSED = "share of reuse's KL that is gone"


def rows_of(measured: Sequence[Measured], gold: Sequence[Sequence[str]]) -> tuple[QualityRow, ...]:
    """A row for each method; `gold` has the data's answers of each question, possibly none."""
    methods = list(measured[0].outcomes)
    columns = {method: _columns(measured, gold, method) for method in methods}
    order = sorted(methods, key=lambda method: (method.name != FULL, str(method.codec)))
    full = next((columns[method] for method in methods if method.name == FULL), None)
    rows = []
    for method in order:
        own = columns[method]
        reuse = next((columns[m] for m in methods if m.name == REUSE and method.codec in (None, m.codec)), None)
        values = {name: mean_interval(own[name]) if own[name] else None for name in METRICS if name in own}
        closed = normalised = None
        if reuse is not None:
            closed = combined_interval([own["kl"], reuse["kl"]], lambda ours, theirs: 1 - ours / theirs)
        if reuse is not None and full is not None and own["f1"]:
            normalised = combined_interval([own["f1"], reuse["f1"], full["f1"]], _normalised)
        values |= {"kl_closed": closed, "normalised_f1": normalised}
        rows.append(QualityRow(method, len(own["kl"]), len(own["rouge1"]), len(own["f1"]), values))
    return tuple(rows)


def _columns(measured: Sequence[Measured], gold: Sequence[Sequence[str]], method: Method) -> dict[str, list[float]]:
    """One value a question for each metric; fewer for those that need an answer of every method."""
    names = ("kl", "top1", "rouge1", "rouge_l", "f1", "em", "contained", "ttft_ms", "tokens_recomputed")
    found: dict[str, list[float]] = {name: [] for name in names}
    for one, answers in zip(measured, gold, strict=True):
        outcome = one.outcomes[method]
        found["kl"].append(outcome.divergence.mean_kl)
        found["top1"].append(outcome.divergence.top1)
        found["ttft_ms"].append(outcome.ttft_ms)
        found["tokens_recomputed"].append(outcome.tokens_recomputed)
        if any(other.answer is None for other in one.outcomes.values()):
            continue
        text = next(other.text for key, other in one.outcomes.items() if key.name == FULL)
        found["rouge1"].append(rouge1_f1(outcome.text, text))
        found["rouge_l"].append(rouge_l_f1(outcome.text, text))
        if answers:
            found["f1"].append(f1(outcome.text, answers))
            found["em"].append(exact_match(outcome.text, answers))
            found["contained"].append(contained(outcome.text, answers))
    return found


def _normalised(ours: np.ndarray, reuse: np.ndarray, full: np.ndarray) -> np.ndarray:
    found: np.ndarray = 100 * (ours - reuse) / (full - reuse)
    return found


def _series(label: str, rows: Sequence[QualityRow], across: str, named: bool = False) -> Series:
    drawn = [(row, found) for row in rows if (found := row.values["kl_closed"]) is not None]
    drawn.sort(key=lambda pair: pair[0].method.ratio)
    x = [row.method.ratio if across == "ratio" else row.mean(across) or 0.0 for row, _ in drawn]
    return Series(
        label,
        tuple(x),
        tuple(found.mean for _, found in drawn),
        tuple(row.method.label for row, _ in drawn) if named else (),
        tuple(found.low for _, found in drawn),
        tuple(found.high for _, found in drawn),
        connected=across == "ratio" and len(x) > 1,
    )


def _cells(row: QualityRow) -> tuple[str, ...]:
    def number(metric: str, form: str = ".3f") -> str:
        found = row.mean(metric)
        return "–" if found is None else format(found, form)

    def between(metric: str, form: str) -> str:
        found = row.values[metric]
        return "–" if found is None else f"{found.low:{form}}–{found.high:{form}}"

    return (
        row.method.label,
        *(number("kl", ".4f"), between("kl", ".4f"), number("kl_closed", ".1%"), between("kl_closed", ".1%")),
        *(number(name) for name in ("top1", "rouge1", "rouge_l", "f1", "em", "contained")),
        *(number("normalised_f1", ".0f"), number("ttft_ms", ".0f"), number("tokens_recomputed", ".0f")),
    )
