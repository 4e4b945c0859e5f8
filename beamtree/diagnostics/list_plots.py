"""Plots of the recommendations: accuracy of the systems, and popularity of recommended items."""

import numpy as np
from matplotlib.ticker import PercentFormatter

from beamtree.diagnostics.accuracy import Accuracy
from beamtree.diagnostics.exposure import BINS, Exposure
from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg


def plot_accuracy(accuracy: Accuracy) -> str:
    """F@20 of every system with its interval, the model on top."""
    values = [system.metrics["f"] for system in accuracy.systems]
    places = np.arange(len(values))[::-1]
    with figure_style():
        figure, [axes] = panels(height=0.7 + 0.34 * len(values))
        for place, value, system in zip(places, values, accuracy.systems, strict=True):
            colour = SERIES[0] if system.lead is None else INK
            axes.plot([value.low, value.high], [place, place], color=colour, linewidth=2.4)
            axes.plot([value.mean], [place], "o", color=colour, markersize=6)
        axes.axvline(values[0].mean, color=FAINT, linewidth=1.0, zorder=0)
        axes.set_yticks(places, [system.name for system in accuracy.systems])
        axes.set_ylim(-0.6, len(values) - 0.4)
        axes.set_xlim(left=0)
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("F@20 and its 95 % interval")
        return to_svg(figure, description="F at 20 of the model and of its baselines, with intervals")


def plot_exposure(exposure: Exposure) -> str:
    """Share of recommendations and of labels by tenths of the catalogue, the most popular first."""
    places = np.arange(1, BINS + 1)
    with figure_style():
        figure, [axes] = panels(height=2.6)
        axes.bar(places - 0.19, exposure.model_bins, width=0.36, color=SERIES[0], label="recommended by this model")
        axes.bar(places + 0.19, exposure.label_bins, width=0.36, color=SERIES[1], label="chosen by people")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xticks(places, ["most\npopular", *(str(place) for place in places[1:-1]), "least\npopular"])
        axes.set_xlabel("tenths of the catalogue")
        axes.legend(loc="upper right")
        return to_svg(figure, description="Share of recommendations and of choices, by popularity of the items")
