"""ROUGE and bootstrap intervals against values worked out by hand, and the files that plots go into."""

from pathlib import Path

import pytest

from appliance.benches.base import BenchRefused
from appliance.benches.bootstrap import mean_interval
from appliance.benches.plots import Panel, Series, check_plot_file, save_panels
from appliance.benches.rouge import rouge1_f1, rouge_l_f1


@pytest.mark.parametrize(
    ("candidate", "reference", "one", "longest"),
    [
        ("the cat sat", "the cat sat", 1.0, 1.0),
        ("The CAT, sat!", "the cat sat", 1.0, 1.0),
        ("police killed the gunman", "police kill the gunman", 3 / 4, 3 / 4),
        ("the gunman killed police", "police killed the gunman", 1.0, 2 / 4),
        ("the the the", "the cat", 2 * 1 / 5, 2 * 1 / 5),
        ("a b c d e", "b d", 2 * 2 / 7, 2 * 2 / 7),
        ("nothing alike", "other words", 0.0, 0.0),
        ("", "words", 0.0, 0.0),
        ("", "", 1.0, 1.0),
        ("Zürich größer", "ZÜRICH größer", 1.0, 1.0),
    ],
)
def test_rouge_by_hand(candidate: str, reference: str, one: float, longest: float) -> None:
    assert rouge1_f1(candidate, reference) == pytest.approx(one)
    assert rouge_l_f1(candidate, reference) == pytest.approx(longest)
    assert rouge_l_f1(reference, candidate) == pytest.approx(longest)


def test_bootstrap_of_what_is_known() -> None:
    same = mean_interval([0.25] * 9)
    assert (same.mean, same.low, same.high) == (0.25, 0.25, 0.25)
    one = mean_interval([3.0])
    assert (one.mean, one.low, one.high) == (3.0, 3.0, 3.0)
    # Half zeros, half ones, n = 100: the mean's standard error is 0.05, so the interval is 0.5 -+ 1.96 * 0.05.
    half = mean_interval([0.0, 1.0] * 50)
    assert half.mean == 0.5
    assert half.low == pytest.approx(0.402, abs=0.012)
    assert half.high == pytest.approx(0.598, abs=0.012)
    assert half == mean_interval([0.0, 1.0] * 50)
    narrow = mean_interval([0.0, 1.0] * 50, percent=50.0)
    assert half.low < narrow.low < narrow.high < half.high


@pytest.mark.parametrize(("values", "percent"), [([], 95.0), ([1.0], 0.0), ([1.0], 100.0)])
def test_bootstrap_refuses(values: list[float], percent: float) -> None:
    with pytest.raises(ValueError, match=r"question|between 0 and 100"):
        mean_interval(values, percent)


PANELS = (
    Panel(
        "bytes", "KL", (Series("KL", (1.0, 2.0), (0.1, 0.01), ("int4", "int8"), (0.05, 0.005), (0.2, 0.02)),), "", True
    ),
    Panel("x", "y", (Series("keys", (1.0,), (2.0,)), Series("values", (1.0, 2.0), (1.0, 3.0), connected=True)), "Two"),
)


@pytest.mark.parametrize(("name", "magic"), [("plot.svg", b"<?xml"), ("plot.PNG", b"\x89PNG")])
def test_a_plot_is_written(tmp_path: Path, name: str, magic: bytes) -> None:
    save_panels(tmp_path / name, PANELS)
    assert (tmp_path / name).read_bytes().startswith(magic)


def test_a_plot_that_could_not_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    check_plot_file(None)
    with pytest.raises(BenchRefused, match=r"\.svg or \.png"):
        check_plot_file(tmp_path / "plot.pdf")
    with pytest.raises(BenchRefused, match="no folder"):
        check_plot_file(tmp_path / "missing" / "plot.svg")
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(BenchRefused, match="cannot be written"):
        save_panels(tmp_path / "taken.svg", PANELS)
