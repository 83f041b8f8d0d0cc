"""Plots of benches: points with names, lines with markers. Readable in grey, axes with units, SVG or PNG."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from appliance.benches.base import BenchRefused

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ENDINGS = (".svg", ".png")
_MARKERS = "osD^vPX*<>"
_PANEL_INCHES = (7.0, 4.6)
_DOTS_PER_INCH = 150
_POINTS_PER_INCH = 72
_LETTER_POINTS, _LINE_POINTS = 4.4, 8.0  # of the names beside points


@dataclass(frozen=True)
class Series:
    """Points with one marker. `names`, where given, are written beside the points, else `label` goes into a legend.

    `low` and `high` are the ends of a bar through each point.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    names: tuple[str, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    connected: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes; `x` and `y` are its labels, with units."""

    x: str
    y: str
    series: tuple[Series, ...]
    title: str = ""
    log_y: bool = False


def check_plot_file(path: Path | None) -> None:
    """Refuse a file that could not be written, before anything is measured. Raises BenchRefused."""
    if path is None:
        return
    if path.suffix.lower() not in ENDINGS:
        raise BenchRefused(f"{path} is no plot file: name one that ends in {' or '.join(ENDINGS)}")
    if not path.parent.is_dir():
        raise BenchRefused(f"{path.parent} is no folder: make it, or name another file for the plot")


def save_panels(path: Path, panels: Sequence[Panel]) -> None:
    """Draw the panels one below the other into `path`. Raises BenchRefused where it cannot be written."""
    from matplotlib.figure import Figure  # half a second that benches without a plot need not pay

    check_plot_file(path)
    width, height = _PANEL_INCHES
    figure = Figure(figsize=(width, height * len(panels)), layout="constrained")
    for axes, panel in zip(figure.subplots(len(panels), squeeze=False)[:, 0], panels, strict=True):
        _draw(axes, panel)
    try:
        figure.savefig(path, dpi=_DOTS_PER_INCH)
    except OSError as error:
        raise BenchRefused(f"{path} cannot be written ({error.strerror}): name another file for the plot") from error


def _draw(axes: "Axes", panel: Panel) -> None:
    for number, series in enumerate(panel.series):
        shade = str(0.55 * number / max(1, len(panel.series) - 1))  # black to grey
        marker, line = _MARKERS[number % len(_MARKERS)], "-" if series.connected else "none"
        axes.plot(series.x, series.y, marker=marker, linestyle=line, color=shade, label=series.label)
        if series.low:
            axes.vlines(series.x, series.low, series.high, color=shade, linewidth=1)
    axes.set_xlabel(panel.x)
    axes.set_ylabel(panel.y)
    if panel.title:
        axes.set_title(panel.title)
    if panel.log_y:
        axes.set_yscale("log")
    axes.margins(x=0.1)  # room for the names of the outermost points
    axes.grid(visible=True, linewidth=0.3)
    if len(panel.series) > 1:
        axes.legend(fontsize=8)
    _write_names(axes, panel.series)


def _write_names(axes: "Axes", series: Sequence[Series]) -> None:
    """Names beside their points, moved up until none covers another, with a thin line back where one was moved."""
    points = [(name, x, y) for each in series for name, x, y in zip(each.names, each.x, each.y, strict=False)]
    axes.autoscale_view()
    taken: list[tuple[float, float, float]] = []
    for name, x, y in sorted(points, key=lambda point: (point[2], point[1])):
        left, bottom = axes.transData.transform((x, y)) * _POINTS_PER_INCH / axes.figure.dpi
        width, moved = _LETTER_POINTS * len(name), 0.0
        while any(
            left < other_left + other_width and other_left < left + width and abs(bottom + moved - at) < _LINE_POINTS
            for other_left, other_width, at in taken
        ):
            moved += 1.0
        taken.append((left, width, bottom + moved))
        line = {"arrowstyle": "-", "linewidth": 0.3} if moved > _LINE_POINTS else None
        place = (4, 3 + moved)
        axes.annotate(name, (x, y), xytext=place, textcoords="offset points", fontsize=7, arrowprops=line)
