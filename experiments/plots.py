"""The two plots of the front page, from the committed results: accuracy beside baselines, and the time of a request.

python -m benchmarks.frontier --json > results/frontier.json
python -m experiments.plots
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from experiments.baselines import MODEL
from experiments.lines import ROOT, Line, read_lines

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
IMAGES = ROOT / "docs" / "images"
LOGS = {
    "ml-1m": "films\nml-1m",
    "ml-100k": "films\nml-100k",
    "globo": "news\nglobo",
    "amazon-8cat": "shop\namazon-8cat",
    "complete-journey": "groceries\ncomplete-journey",
}
SYSTEMS = {
    MODEL: ("beamtree", "#00897b"),
    "gru4rec": ("GRU4Rec, all items scanned", "#5b84b1"),
    "sasrec": ("SASRec, all items scanned", "#9fb8d6"),
    "item-to-item": ("item-to-item", "#b8a1cf"),
    "personal-frequency": ("personal frequency", "#d9a86c"),
    "popularity": ("popularity", "#c9c9c9"),
}
EARLIER = "with SASRec's encoder"
"""The default as it was before, on the same users and under the same protocol."""
SEARCHES = {
    "ms_default": ("beamtree: whole score, beam 150", "#00897b", "o"),
    "ms_hnsw": ("HNSW over the encoder's vectors, efSearch 150", "#7a9cc6", "s"),
}


@contextmanager
def _drawing(title: str) -> Iterator[tuple[Figure, Axes]]:
    """A new figure in the front page's style, and its axes."""
    with rc_context(STYLE):
        figure = Figure(figsize=(7.2, 3.2), layout="constrained", facecolor="white")
        FigureCanvasSVG(figure)
        axes = figure.add_subplot()
        axes.set_title(title, loc="left", fontsize=10)
        yield figure, axes


def accuracy_plot(lines: Sequence[Line]) -> bytes:
    """F@20 on the test users of each log, mean over seeds; lines: those of the study of baselines.

    Lines of other fits than the default count for the baselines that were asked beside them.
    """
    found = {
        log: {system: mean for system in SYSTEMS if (mean := _mean(lines, log, system)) is not None} for log in LOGS
    }
    with _drawing("Accuracy on test users, beside baselines") as (figure, axes):
        axes.set_axisbelow(True)
        width = 0.85 / len(SYSTEMS)
        for place, (system, (label, colour)) in enumerate(SYSTEMS.items()):
            shift = (place - (len(SYSTEMS) - 1) / 2) * width
            at = [number + shift for number, log in enumerate(LOGS) if system in found[log]]
            values = [found[log][system] for log in LOGS if system in found[log]]
            bars = axes.bar(at, values, 0.92 * width, label=label, color=colour)
            if system == MODEL:
                axes.bar_label(bars, fmt=lambda value: f"{value:.3f}".lstrip("0"), fontsize=8, padding=1)
        axes.set_xticks(range(len(LOGS)), list(LOGS.values()))
        axes.grid(axis="x", visible=False)
        axes.set(ylabel="F@20", ylim=(0, 0.32))
        axes.legend(ncols=2, fontsize=8, loc="upper right")
        words = "; ".join(
            f"{log}: " + ", ".join(f"{SYSTEMS[name][0]} {value:.4f}" for name, value in systems.items())
            for log, systems in found.items()
        )
        return _svg(figure, words)


def latency_plot(frontier: Mapping[str, Any]) -> bytes:
    """Median milliseconds of one request on one thread by catalogue size; frontier: what the benchmark printed."""
    catalogues = frontier["catalogues"]
    sizes = [one["items"] for one in catalogues]
    with _drawing("Time of one request") as (figure, axes):
        for name, (label, colour, marker) in SEARCHES.items():
            axes.plot(sizes, [one[name] for one in catalogues], label=label, color=colour, marker=marker, linewidth=1.8)
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
        axes.minorticks_off()
        axes.set_ylim(bottom=0)
        axes.set(xlabel="items in the catalogue", ylabel="ms per request, one core")
        axes.legend()
        words = "; ".join(
            f"{one['items']:,} items: beamtree {one['ms_default']} ms, HNSW {one['ms_hnsw']} ms" for one in catalogues
        )
        return _svg(figure, words)


def main() -> None:
    """Draw both."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    lines = [line for line in read_lines(ROOT / "results" / "baselines.jsonl") if line["name"] in (MODEL, EARLIER)]
    (IMAGES / "accuracy.svg").write_bytes(accuracy_plot(lines))
    frontier = json.loads((ROOT / "results" / "frontier.json").read_text(encoding="utf-8"))
    (IMAGES / "latency.svg").write_bytes(latency_plot(frontier))


def _mean(lines: Sequence[Line], log: str, system: str) -> float | None:
    asked = [line for line in lines if line["data"] == log and (system != MODEL or line["name"] == MODEL)]
    values = [line["metrics"][system]["f@20"] for line in asked if system in line["metrics"]]
    return float(np.mean(values)) if values else None


def _svg(figure: Figure, description: str) -> bytes:
    drawn = BytesIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None, "Description": description})
    return drawn.getvalue()


if __name__ == "__main__":
    main()
