"""Figures as SVG for a page: generic fonts, colours that follow the page's theme, nothing fetched from elsewhere."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

# Stand-ins for the page's colours: each becomes a CSS variable, so that a figure is readable on light and dark ground.
INK: Final = "#010101"
FAINT: Final = "#020202"
SHADE: Final = "#030303"
SERIES: Final = ("#040404", "#050505", "#060606", "#070707")

_VARIABLES = {INK: "--ink-2", FAINT: "--line", SHADE: "--shade"} | {
    stand_in: f"--series-{number}" for number, stand_in in enumerate(SERIES, start=1)
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "beamtree",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.size": 0,
    "xtick.major.pad": 6,
    "ytick.major.size": 0,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "lines.solid_capstyle": "round",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Figures made inside look alike, whatever the person's own matplotlib settings are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def panels(count: int = 1, *, height: float = 2.9) -> tuple[Figure, list[Axes]]:
    """A figure as wide as the page, with panels side by side."""
    figure = Figure(figsize=(8.2, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)
    return figure, list(axes[0])


def to_svg(figure: Figure, *, description: str) -> str:
    """The figure as one <svg> element, to embed in a page; `description`: for screen readers."""
    FigureCanvasSVG(figure)
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns(:\w+)?="[^"]*"', "", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: var(--font)", text)
    text = re.sub(
        r'<svg\b[^>]*?(viewBox="[^"]*")[^>]*>', rf'<svg \1 role="img" aria-label="{escape(description)}">', text
    )
    for stand_in, variable in _VARIABLES.items():
        text = text.replace(stand_in, f"var({variable})")
    return text.strip()
