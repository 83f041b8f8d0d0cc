"""The paper's Figures 10 to 16, of this run: one file a figure."""

from collections.abc import Sequence
from pathlib import Path

from appliance.benches.harag.base import HARAG_MEASURED, HARAG_PAPER, THRESHOLDS, TURBORAG, Asked
from appliance.benches.harag.quality import FIGURE_CODECS, Answered
from appliance.benches.harag.result import HaragResult, speedup, windows
from appliance.benches.plots import Panel, Series, save_panels

_ROUGE = "ROUGE-1 F1 against TurboRAG"
_SPEEDUP = "TTFT speed-up over TurboRAG"
_QUESTIONS = "questions"
_ABLATION = ("mp_only", "dp_no_pin", "dp_pin_only", "dp_only", HARAG_PAPER, HARAG_MEASURED)
# Figure 10 of the paper sorts its questions by FP8.
_SORTED_BY = "e4m3"


def save_figures(folder: Path, result: HaragResult, asked: Sequence[Asked], answered: Sequence[Answered]) -> None:
    """Write `figure-10.svg` … `figure-16.svg`; those that this run has no numbers for are left out."""
    drawn = {
        "figure-10": _by_question(answered),
        "figure-11": _by_codec(answered),
        "figure-12": _thresholds(result),
        "figure-13": _sets(answered),
        "figure-14": _growth(asked),
        "figure-15": _each_question(asked),
        "figure-16": _ablation(result),
    }
    for name, panels in drawn.items():
        if panels:
            save_panels(folder / f"{name}.svg", panels)


def _by_question(answered: Sequence[Answered]) -> list[Panel]:
    """Figure 10: every codec over the same questions, sorted by the score of FP8."""
    scored = sorted((one.codecs for one in answered if one.codecs), key=lambda codecs: -codecs[_SORTED_BY])
    if not scored:
        return []
    across = tuple(float(number + 1) for number in range(len(scored)))
    series = [Series(pair.name, across, tuple(codecs[pair.name] for codecs in scored)) for pair in FIGURE_CODECS]
    return [Panel(f"{_QUESTIONS}, sorted by {_SORTED_BY}", _ROUGE, tuple(series))]


def _by_codec(answered: Sequence[Answered]) -> list[Panel]:
    """Figure 11: each codec's own scores, sorted."""
    scored = [one.codecs for one in answered if one.codecs]
    if not scored:
        return []
    series = [_sorted(pair.name, [codecs[pair.name] for codecs in scored]) for pair in FIGURE_CODECS]
    return [Panel("share of the questions (%)", _ROUGE, tuple(series))]


def _thresholds(result: HaragResult) -> list[Panel]:
    """Figure 12: the speed-up of the paper's codecs under its four settings of τ."""
    named = {f"harag_{name}": name for name in THRESHOLDS} | {HARAG_PAPER: "param3"}
    found = {name: result.systems[system].speedup_mean for system, name in named.items() if system in result.systems}
    if len(found) < len(named):
        return []
    names = tuple(sorted(found))
    across = tuple(float(name.removeprefix("param")) for name in names)
    series = Series("", across, tuple(found[name] for name in names), names)
    return [Panel("setting of τ1, τ2, τ3", _SPEEDUP, (series,))]


def _sets(answered: Sequence[Answered]) -> list[Panel]:
    """Figure 13: each KV set's scores, sorted; the paper's third setting is `paper`."""
    if not answered:
        return []
    names = [name for name in answered[0].sets if name != TURBORAG]
    series = [_sorted(name, [one.sets[name].rouge1 for one in answered]) for name in names]
    return [Panel("share of the questions (%)", _ROUGE, tuple(series))]


def _growth(asked: Sequence[Asked]) -> list[Panel]:
    """Figure 14: the mean speed-up over the first questions, by how many they are."""
    ends = [sum(len(part) for part in windows(asked)[: number + 1]) for number in range(len(windows(asked)))]
    series = [
        Series(name, tuple(map(float, ends)), tuple(speedup(asked[:end], name) for end in ends), connected=True)
        for name in (HARAG_PAPER, HARAG_MEASURED)
    ]
    return [Panel(_QUESTIONS, _SPEEDUP, tuple(series))]


def _each_question(asked: Sequence[Asked]) -> list[Panel]:
    """Figure 15: the speed-up of every question, and of each window."""
    across = tuple(float(number + 1) for number in range(len(asked)))
    ends = [sum(len(part) for part in windows(asked)[: number + 1]) for number in range(len(windows(asked)))]
    panels = []
    for name in (HARAG_PAPER, HARAG_MEASURED):
        each = tuple(one.ttft_ms(TURBORAG) / one.ttft_ms(name) for one in asked)
        means = tuple(speedup(part, name) for part in windows(asked))
        series = (Series("window", tuple(map(float, ends)), means, connected=True), Series("question", across, each))
        panels.append(Panel(_QUESTIONS, _SPEEDUP, series, title=name))
    return panels


def _ablation(result: HaragResult) -> list[Panel]:
    """Figure 16: what each part is worth alone."""
    across = tuple(float(number) for number in range(len(_ABLATION)))
    series = Series("", across, tuple(result.systems[name].speedup_mean for name in _ABLATION), _ABLATION)
    return [Panel("system", _SPEEDUP, (series,))]


def _sorted(name: str, scores: Sequence[float]) -> Series:
    across = tuple(100.0 * (number + 1) / len(scores) for number in range(len(scores)))
    return Series(name, across, tuple(sorted(scores, reverse=True)), connected=True)
