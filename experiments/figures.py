"""The figures of the report, as small SVG files whose bytes depend on the lines alone."""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments.results import Line
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped

LOOKS = {
    "dtr-u": ("#8a8a8a", "o"),
    "dtr-t": ("#2a78b5", "s"),
    "dtr-t-rl": ("#c8452c", "D"),
    "sasrec": ("#3d8f57", "^"),
    "item-to-item": ("#7a5aa6", "P"),
    "popularity": ("#b59a2a", "v"),
}
"""Colour and marker of each system."""
OTHER_LOOK = ("#444444", "x")

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
SMALLEST_SPAN = 0.3
"""What the vertical axis spans at least, as a share of its middle: so that a few per cent do not look like a trend."""

Curve = Mapping[float, Spread]
Figures = dict[str, bytes]
"""SVG files by name."""


def rounds_figure(rounds: Sequence[Line], *, title: str) -> bytes:
    """Validation F@20 at the end of each round, one curve per system, a bar for the spread over seeds."""
    curves = _curves(rounds, place=lambda line: line["round"] + 1)
    across = "round (the tree is relearned between rounds)"
    return _draw(curves, title=title, across=across, marked=_places(curves), beside=0.03)


def study_figure(lines: Sequence[Line], *, title: str, across: str) -> bytes:
    """Validation F@20 over the values of a study, one curve per system."""
    curves = _curves(lines, place=lambda line: line["study"]["value"])
    return _draw(curves, title=title, across=across, marked=_places(curves))


def time_figure(curves: Mapping[str, Curve], *, title: str) -> bytes:
    """Validation F@20 over the processor seconds that runs took, one curve per system."""
    return _draw(curves, title=title, across="processor seconds, the estimator's among them")


def _curves(lines: Sequence[Line], *, place: Callable[[Line], float]) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for system, own in grouped(lines, lambda line: line["system"]).items():
        by_place = grouped(own, place)
        curves[system] = {at: Spread.of([line["metrics"]["f@20"] for line in by_place[at]]) for at in sorted(by_place)}
    return curves


def _places(curves: Mapping[str, Curve]) -> list[float]:
    return sorted({place for curve in curves.values() for place in curve})


def _draw(
    curves: Mapping[str, Curve],
    *,
    title: str,
    across: str,
    marked: Sequence[float] | None = None,
    beside: float = 0.0,
) -> bytes:
    """beside: by how much neighbouring curves are moved apart, where their bars would hide each other."""
    spreads = [spread for curve in curves.values() for spread in curve.values()]
    has_seeds = any(spread.count > 1 for spread in spreads)
    with rc_context(STYLE):
        figure = Figure(figsize=(5.4, 3.2), layout="constrained")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        for number, system in enumerate(sorted(curves, key=ORDER.index)):
            colour, marker = LOOKS.get(system, OTHER_LOOK)
            axes.errorbar(
                [place + beside * (number - (len(curves) - 1) / 2) for place in curves[system]],
                [spread.mean for spread in curves[system].values()],
                yerr=[spread.deviation for spread in curves[system].values()] if has_seeds else None,
                label=SYSTEM_NAMES[system],
                color=colour,
                marker=marker,
                markersize=4.5,
                linewidth=1.6,
                capsize=2.5,
            )
        axes.set_title(title if has_seeds else f"{title} (one seed)", loc="left", fontsize=10)
        if marked is not None:
            axes.set_xticks(marked)
        _widen(axes, spreads)
        axes.set_xlabel(across)
        axes.set_ylabel("validation F@20")
        if len(curves) > 1:
            axes.legend()
        drawn = BytesIO()
        description = "; ".join(_in_words(system, curves[system]) for system in sorted(curves, key=ORDER.index))
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Description": description})
    return drawn.getvalue()


def _in_words(system: str, curve: Curve) -> str:
    """The points of a curve, for those who cannot see it."""
    return f"{SYSTEM_NAMES[system]}: " + ", ".join(f"{spread.text()} at {place:g}" for place, spread in curve.items())


def _widen(axes: Axes, spreads: Sequence[Spread]) -> None:
    """Let the vertical axis span at least its share."""
    lowest = min(spread.mean - spread.deviation for spread in spreads)
    highest = max(spread.mean + spread.deviation for spread in spreads)
    middle = (lowest + highest) / 2
    half = max(1.1 * (highest - lowest), SMALLEST_SPAN * middle) / 2
    if half > 0:
        axes.set_ylim(middle - half, middle + half)
