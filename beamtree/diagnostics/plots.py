"""One figure for each diagnostic."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from beamtree.diagnostics.averages import Average
from beamtree.diagnostics.beams import BeamComparison
from beamtree.diagnostics.label_changes import LabelChanges
from beamtree.diagnostics.report import Diagnostics, LevelReport
from beamtree.diagnostics.rounds import TrainingHistory
from beamtree.diagnostics.svg import FAINT, INK, SERIES, SHADE, figure_style, panels, to_svg


def plot_sampling(diagnostics: Diagnostics) -> str:
    """KL(Q || P) by level for the three samplers."""
    levels = diagnostics.levels
    with figure_style():
        figure, [axes] = panels(height=3.3)
        _shade_levels(axes, [level for level in levels if level.taken_whole], "taken whole in training")
        _by_level(axes, levels, [level.uniform for level in levels], "uniform", SERIES[1])
        _by_level(axes, levels, [level.from_root for level in levels], "top-down from the root", SERIES[2], dashed=True)
        _by_level(axes, levels, [level.from_level for level in levels], _start_label(diagnostics), SERIES[0])
        _name_levels(axes, levels)
        axes.set_ylabel("KL(Q||P), nats")
        axes.set_ylim(bottom=0)
        _legend_above(figure)
        return to_svg(figure, description="Divergence of the samplers from the softmax, by level of the tree")


def plot_heap(diagnostics: Diagnostics) -> str:
    """Shares of contradicting sibling pairs by level, and of top leaves that fall out of the beam."""
    levels, width = diagnostics.levels[:-1], diagnostics.subject.beam_width
    with figure_style():
        figure, [axes] = panels(height=3.3)
        _shade_levels(axes, [level for level in levels if level.nodes <= width], "kept whole by the beam")
        _by_level(
            axes, levels, [level.child_violations for level in levels], "against best child", SERIES[2], dashed=True
        )
        _by_level(axes, levels, [level.leaf_violations for level in levels], "against best leaf", SERIES[1])
        _by_level(
            axes, levels, [level.path_violations for level in levels], "same, on the way to the top 20", SERIES[0]
        )
        _by_level(axes, levels, [level.lost_paths for level in levels], "top 20 outside the beam", SERIES[3])
        _name_levels(axes, levels)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_ylim(bottom=0)
        _legend_above(figure)
        return to_svg(figure, description="Share of max-heap violations, by level of the tree")


def plot_beams(beams: BeamComparison) -> str:
    """Overlap with the exact scan, and the F@20 that is lost against it, by beam width."""
    widths = [result.width for result in beams.results]
    with figure_style():
        figure, [left, right] = panels(2)
        left.set_title("exact top 20 that is found")
        _with_errors(left, widths, [result.overlap for result in beams.results], SERIES[0])
        left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        right.set_title("lost F@20, and its standard error")
        _with_errors(right, widths, [result.lost_f for result in beams.results], SERIES[1])
        right.axhline(0.0, color=INK, linestyle=":", linewidth=1.2)
        for axes in (left, right):
            axes.set_xlabel("beam width")
            axes.set_xticks(widths)
            axes.axvline(min(beams.model_width, widths[-1]), color=FAINT, linewidth=5, zorder=0)
        return to_svg(figure, description="Overlap of beam search with the exact scan and lost F at 20, by beam width")


def plot_labels(labels: LabelChanges) -> str:
    """Share of flipped labels by the size of the error."""
    thresholds = [change.threshold for change in labels.changes]
    with figure_style():
        figure, [axes] = panels(height=2.6)
        axes.set_xscale("log")
        _with_errors(axes, thresholds, [change.changed for change in labels.changes], SERIES[0])
        axes.axvline(labels.mean_probability, color=INK, linestyle=":", linewidth=1.2)
        axes.set_ylim(bottom=0)
        axes.annotate(
            "1 / items",
            (labels.mean_probability, 1.0),
            xytext=(-5, 0),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="right",
            va="top",
        )
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0e}"))
        axes.set_xlabel("largest error of a probability")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_title("labels that change")
        return to_svg(figure, description="Share of rectified labels that change, by the size of the perturbation")


def plot_training(training: TrainingHistory) -> str:
    """Validation over steps; with relearned trees also the moves and the placement's score, round by round."""
    relearned = [item for item in training.rounds if item.moved_share is not None]
    with figure_style():
        figure, axes = panels(3 if relearned else 1, height=2.7)
        _plot_validations(axes[0], training)
        if relearned:
            numbers = [item.number for item in relearned]
            axes[1].set_title("items moved after a round")
            axes[1].bar(numbers, [item.moved_share or 0.0 for item in relearned], width=0.6, color=SERIES[0])
            axes[1].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            axes[2].set_title("score of the placement")
            before = [item.score_before or np.nan for item in relearned]
            after = [item.score_after or np.nan for item in relearned]
            axes[2].plot(numbers, before, "o", color=SERIES[1], label="before")
            axes[2].plot(numbers, after, "o", color=SERIES[0], label="after")
            axes[2].yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
            axes[2].legend(loc="best", handletextpad=0.2)
            for panel in axes[1:]:
                panel.set_xlabel("round")
                panel.set_xticks(numbers)
        return to_svg(figure, description="Validation during training, and items that changed places")


def plot_loss(diagnostics: Diagnostics) -> str:
    """Loss by level, beside that of guessing."""
    levels = diagnostics.levels
    with figure_style():
        figure, [axes] = panels()
        places = [level.level for level in levels]
        axes.bar(places, [level.chance for level in levels], width=0.66, color=SHADE, label="guessing: ln(nodes)")
        axes.bar(places, [level.loss.mean for level in levels], width=0.4, color=SERIES[0], label="model")
        _name_levels(axes, levels)
        axes.set_ylabel("cross-entropy, nats")
        _legend_above(figure)
        return to_svg(figure, description="Loss on held-out next items, by level of the tree")


def compact(value: float) -> str:
    """A number in few characters: 0.034, 8.10, 3,212, 8.9e+15."""
    size = abs(value)
    if size >= 1e6 or 0 < size < 1e-3:
        return f"{value:.1e}"
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3f}" if size < 1 else f"{value:.2f}"


def _plot_validations(axes: Axes, training: TrainingHistory) -> None:
    axes.set_title("F@20 on validation users")
    axes.set_xlabel("training step")
    steps = [validation.step for validation in training.validations]
    axes.plot(steps, [validation.f for validation in training.validations], "o-", color=SERIES[0])
    boundary = 0
    for item in training.rounds[:-1]:
        boundary += item.steps
        axes.axvline(boundary, color=FAINT, linewidth=1.0, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _by_level(
    axes: Axes,
    levels: Sequence[LevelReport],
    values: Sequence[Average | None],
    label: str,
    colour: str,
    *,
    dashed: bool = False,
) -> None:
    known = [(level.level, value.mean) for level, value in zip(levels, values, strict=True) if value is not None]
    if known:
        places, means = zip(*known, strict=True)
        axes.plot(places, means, "o--" if dashed else "o-", color=colour, label=label, clip_on=False)


def _with_errors(axes: Axes, places: Sequence[float], values: Sequence[Average], colour: str) -> None:
    means = np.array([value.mean for value in values])
    errors = np.array([value.standard_error or 0.0 for value in values])
    axes.fill_between(places, means - errors, means + errors, color=colour, alpha=0.18, linewidth=0)
    axes.plot(places, means, "o-", color=colour)


def _name_levels(axes: Axes, levels: Sequence[LevelReport]) -> None:
    axes.set_xticks([level.level for level in levels], [f"{level.level}\n{short(level.nodes)}" for level in levels])
    axes.set_xlabel("level, and its nodes")


def short(count: int) -> str:
    """A count in at most four characters: 512, 2.0k, 131k, 1.2M."""
    for limit, unit in ((1_000_000, "M"), (1_000, "k")):
        if count >= limit:
            scaled = count / limit
            return f"{scaled:.0f}{unit}" if scaled >= 10 else f"{scaled:.1f}{unit}"
    return str(count)


def _shade_levels(axes: Axes, upper_levels: Sequence[LevelReport], label: str) -> None:
    if upper_levels:
        axes.axvspan(0.5, upper_levels[-1].level + 0.5, color=SHADE, linewidth=0, label=label)


def _start_label(diagnostics: Diagnostics) -> str:
    if diagnostics.sampling_start > diagnostics.subject.height:
        return "top-down as in training"
    return f"top-down from level {diagnostics.sampling_start}, as in training"


def _legend_above(figure: Figure) -> None:
    figure.legend(loc="outside upper left", ncols=2, handlelength=2.4, columnspacing=2.0)
