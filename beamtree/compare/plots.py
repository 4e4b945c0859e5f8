"""The figures of a comparison's report."""

from matplotlib.axes import Axes

from beamtree.compare.summary import METRIC, Row, Summary
from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg

SHOWN = 25
COLOURS = {
    "ours": SERIES[0],
    "tree": SERIES[1],
    "index over vectors": SERIES[2],
    "brute force": SERIES[3],
    "counting and linear": INK,
}


def plot_accuracy(summary: Summary) -> str:
    """F@20 of each system with its interval, best on top."""
    rows = list(summary.rows[:SHOWN])[::-1]
    with figure_style():
        figure, [axes] = panels(height=0.8 + 0.27 * len(rows))
        for place, row in enumerate(rows):
            colour = COLOURS[row.family]
            axes.plot([row.interval.low, row.interval.high], [place, place], color=colour, linewidth=2.2)
            axes.plot([row.interval.estimate], [place], marker="o", color=colour)
        axes.set_yticks(range(len(rows)), [row.name for row in rows])
        axes.set_xlim(left=0)
        axes.set_xlabel("F@20, mean over users and seeds, 95 % interval over users")
        axes.grid(axis="x", color=FAINT)
        axes.grid(axis="y", visible=False)
        _families(axes, summary)
        return to_svg(figure, description="F@20 of every system with its interval")


def plot_latency(summary: Summary) -> str:
    """F@20 against the time of one request; indexes as curves over their effort."""
    with figure_style():
        figure, [axes] = panels(height=4.2)
        for row in summary.rows[:SHOWN]:
            _curve(axes, row)
        axes.set_xscale("log")
        axes.set_xlabel("ms per request, one by one, median (log)")
        axes.set_ylabel("F@20")
        axes.set_ylim(bottom=0)
        axes.grid(axis="x", color=FAINT)
        _families(axes, summary)
        return to_svg(figure, description="F@20 against milliseconds per request")


def plot_size(summary: Summary) -> str | None:
    """F@20 against the bytes of an index; None where no system has one."""
    rows = [row for row in summary.rows[:SHOWN] if row.mean("index_bytes")]
    if not rows:
        return None
    with figure_style():
        figure, [axes] = panels(height=3.4)
        for row in rows:
            size = (row.mean("index_bytes") or 0) / 1e6
            axes.plot([size], [row.metric(METRIC)], marker="o", color=COLOURS[row.family])
            _label(axes, row.name, size, row.metric(METRIC))
        axes.set_xscale("log")
        axes.set_xlabel("index, MB (log)")
        axes.set_ylabel("F@20")
        axes.set_ylim(bottom=0)
        axes.grid(axis="x", color=FAINT)
        return to_svg(figure, description="F@20 against the size of the index")


def _curve(axes: Axes, row: Row) -> None:
    colour = COLOURS[row.family]
    sweep = row.results[0]["sweep"]
    if sweep:
        axes.plot([one["ms_single"] for one in sweep], [one[METRIC] for one in sweep], color=colour, linewidth=1.2)
    at = row.mean("ms_single") or 0.0
    axes.plot([at], [row.metric(METRIC)], marker="o", color=colour)
    _label(axes, row.name, at, row.metric(METRIC))


def _label(axes: Axes, text: str, x: float, y: float) -> None:
    axes.annotate(text, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=8, color=INK)


def _families(axes: Axes, summary: Summary) -> None:
    """A legend of the families that are there."""
    for family in COLOURS:
        if any(row.family == family for row in summary.rows):
            axes.plot([], [], marker="o", linestyle="", color=COLOURS[family], label=family)
    axes.legend(loc="lower right", fontsize=8)
