"""The figures of the report, as small SVG files whose bytes depend on the lines alone."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments.results import Line
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped

COLOURS = {"dtr-u": "#8a8a8a", "dtr-t": "#2a78b5", "dtr-t-rl": "#c8452c", "sasrec": "#3d8f57", "popularity": "#b59a2a"}
MARKERS = {"dtr-u": "o", "dtr-t": "s", "dtr-t-rl": "D", "sasrec": "^", "popularity": "v"}
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "beamtree",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "font.family": ["sans-serif"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "legend.frameon": False,
}
Curve = Mapping[float, Spread]


def rounds_figure(file: Path, rounds: Sequence[Line], *, title: str) -> None:
    """Validation F@20 at the end of each round, one curve per system, a bar for the spread over seeds."""
    curves = _curves(rounds, place=lambda line: line["round"] + 1)
    _draw(file, curves, title=title, across="round (the tree is relearned between rounds)", marked=_places(curves))


def study_figure(file: Path, lines: Sequence[Line], *, title: str, across: str) -> None:
    """Validation F@20 over the values of a study, one curve per system."""
    curves = _curves(lines, place=lambda line: line["study"]["value"])
    _draw(file, curves, title=title, across=across, marked=_places(curves))


def time_figure(file: Path, curves: Mapping[str, Curve], *, title: str) -> None:
    """Validation F@20 over the processor seconds that runs took, one curve per system."""
    _draw(file, curves, title=title, across="processor seconds, the estimator's among them")


def _curves(lines: Sequence[Line], *, place: Callable[[Line], float]) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for system, own in grouped(lines, lambda line: line["system"]).items():
        by_place = grouped(own, place)
        curves[system] = {at: Spread.of([line["metrics"]["f@20"] for line in by_place[at]]) for at in sorted(by_place)}
    return curves


def _places(curves: Mapping[str, Curve]) -> list[float]:
    return sorted({place for curve in curves.values() for place in curve})


def _draw(
    file: Path, curves: Mapping[str, Curve], *, title: str, across: str, marked: Sequence[float] | None = None
) -> None:
    with rc_context(STYLE):
        figure = Figure(figsize=(5.4, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for system in sorted(curves, key=ORDER.index):
            places = list(curves[system])
            spreads = list(curves[system].values())
            axes.errorbar(
                places,
                [spread.mean for spread in spreads],
                yerr=[spread.deviation for spread in spreads] if any(spread.count > 1 for spread in spreads) else None,
                label=SYSTEM_NAMES[system],
                color=COLOURS[system],
                marker=MARKERS[system],
                markersize=4.5,
                linewidth=1.6,
                capsize=2.5,
            )
        axes.set_title(title, loc="left", fontsize=10)
        if marked is not None:
            axes.set_xticks(marked)
        axes.set_xlabel(across)
        axes.set_ylabel("validation F@20")
        if len(curves) > 1:
            axes.legend()
        file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
