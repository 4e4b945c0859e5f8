"""Plots of the parts of a score: contribution by group of users, and guidance of the beam."""

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from beamtree.diagnostics.contributions import Contributions
from beamtree.diagnostics.plots import short
from beamtree.diagnostics.svg import INK, SERIES, figure_style, panels, to_svg


def plot_gains(contributions: Contributions) -> str:
    """What leaving out a part costs each group of users, in F@20 and NDCG@20, with 95 % intervals."""
    groups, parts = contributions.groups, contributions.parts
    places = np.arange(len(groups))[::-1]
    with figure_style():
        figure, axes = panels(2, height=0.9 + 0.42 * len(groups))
        for panel, metric, name in zip(axes, ("f_gain", "ndcg_gain"), ("F@20", "NDCG@20"), strict=True):
            panel.set_title(f"{name} that is lost without a part")
            panel.axvline(0.0, color=INK, linestyle=":", linewidth=1.2)
            for number, part in enumerate(parts):
                gains = [getattr(group.parts[number], metric) for group in groups]
                means = np.array([gain.mean for gain in gains])
                reach = np.array([[gain.mean - gain.low, gain.high - gain.mean] for gain in gains]).T
                shift = 0.26 * ((len(parts) - 1) / 2 - number)
                panel.errorbar(
                    means, places + shift, xerr=np.maximum(reach, 0.0), fmt="o", color=SERIES[number], label=part
                )
            panel.set_ylim(-0.6, len(groups) - 0.4)
            panel.set_yticks(places, [group.group for group in groups] if panel is axes[0] else [""] * len(groups))
            panel.xaxis.set_major_locator(MaxNLocator(5))
            panel.grid(visible=False, axis="y")
            panel.grid(visible=True, axis="x")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=len(parts))
        return to_svg(figure, description="F at 20 and NDCG at 20 that are lost without each part, by group of users")


def plot_guidance(contributions: Contributions) -> str:
    """By level: each part's share of the spread, and the share of the exact top 20 that is kept without each part.

    Colours are those of `plot_gains`, which names them.
    """
    levels, parts = contributions.levels, contributions.parts
    places = np.arange(len(levels))
    with figure_style():
        figure, [left, right] = panels(2, height=3.1)
        left.set_title("share of the spread of scores")
        bottom = np.zeros(len(levels))
        for number, part in enumerate(parts):
            spreads = [level.spread[part] for level in levels]
            shares = np.array([0.0 if spread is None else spread.mean for spread in spreads])
            left.bar(places, shares, 0.62, bottom=bottom, color=SERIES[number])
            bottom += shares
        right.set_title("exact top 20 that is kept")
        right.plot(places, [level.recall.mean for level in levels], "o-", color=INK, label="whole score")
        for number, part in enumerate(parts):
            kept = [level.recall_without[part].mean for level in levels]
            right.plot(places, kept, "o--", color=SERIES[number], label=f"without {part}")
        for panel in (left, right):
            panel.set_xticks(places, [f"{level.level}\n{short(level.nodes)}" for level in levels])
            panel.set_xlabel("level, and its nodes")
            panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            panel.set_ylim(0.0, 1.04)
        right.legend(loc="lower left")
        return to_svg(figure, description="Spread of the parts' scores and what the beam keeps without each, by level")
