"""The section on the contribution of each part of the score."""

from collections.abc import Iterator

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from beamtree.diagnostics.averages import Bounded
from beamtree.diagnostics.contributions import Contributions, GroupContributions, PartContribution
from beamtree.diagnostics.plots import short
from beamtree.diagnostics.report import Diagnostics
from beamtree.diagnostics.section import Section, Table, cell, share_cell
from beamtree.diagnostics.svg import INK, SERIES, figure_style, panels, to_svg
from beamtree.evaluation.verdict import MIN_USERS


def parts_section(diagnostics: Diagnostics) -> Section | None:
    """The contribution of each part by group of users and by level; None for a score of a single part."""
    contributions = diagnostics.parts
    if contributions is None:
        return None
    return Section(
        key="parts",
        title="Contribution of each part",
        meaning="The score is a sum of parts. Metrics without a part show its contribution to the sum, metrics of a "
        "part alone its own accuracy, and the levels show which part guides the search.",
        reading="\n".join(
            " ".join(sentences)
            for read in (_read_parts, _read_groups, _read_levels)
            if (sentences := list(read(contributions)))
        ),
        plot=plot_gains(contributions) + plot_guidance(contributions),
        tables=(_metrics_table(contributions), _levels_table(contributions)),
        definition=f"{contributions.users:,} users, {diagnostics.subject.protocol}, all scores searched with a beam of "
        f"{diagnostics.subject.beam_width}, as served. A part that scores the last levels only cannot guide a beam "
        "alone. Lost without: the whole score's metric minus that of the score without the part, in brackets the 95 % "
        "interval of a paired bootstrap over users. Short histories have at most "
        f"{contributions.median_history:,.0f} items, the median. Popular labels are those among the "
        f"{contributions.popular_items:,} items that make up half of the training interactions, rare ones all others; "
        "each of the two counts these labels only, for the users who have any. Spread: the standard deviation of a "
        "part's scores over the nodes that the beam of the whole score visits, as a share of the sum over parts. "
        "Kept: the share of the whole score's exact top 20 whose ancestor is kept on the level by the beam of the "
        "whole score, or of the score without the part; on the leaves, whose item is returned "
        f"({contributions.guided_users:,} users).",
        remedy="A part without effect only costs time: fit without it (--set model.parts=...) and "
        "compare. A part that helps some users and hurts others has a weight for the average: "
        "set it with model.weights. A level that keeps less without a part is guided by "
        "it: a wider beam (retrieval.beam_width) makes the search depend on it less.",
    )


def is_idle(part: PartContribution) -> bool:
    """Whether its absence changes neither metric beyond the paired interval."""
    return part.f_gain.holds_zero and part.ndcg_gain.holds_zero


def _read_parts(contributions: Contributions) -> Iterator[str]:
    everybody = contributions.everybody
    alone = ", ".join(f"{part.part} alone {part.alone.f.mean:.4f}" for part in everybody.parts)
    yield f"F@20 is {everybody.whole.f.mean:.4f} with all parts, {alone}."
    if everybody.users < MIN_USERS:
        yield f"{everybody.users} users are too few to measure the contribution of a part."
        return
    for part in everybody.parts:
        if is_idle(part):
            yield (
                f"Leaving out {part.part} has no significant effect on {everybody.users:,} users "
                f"({_interval(part.f_gain)} in F@20)."
            )
        else:
            yield f"Without {part.part}, {_effect(part.f_gain, 'F@20')} and {_effect(part.ndcg_gain, 'NDCG@20')}."


def _effect(gain: Bounded, metric: str) -> str:
    if gain.holds_zero:
        return f"{metric} stays within its interval ({_interval(gain)})"
    verb = "falls" if gain.mean > 0.0 else "rises"
    return f"{metric} {verb} by {abs(gain.mean):.4f} ({_interval(gain)})"


def _interval(gain: Bounded) -> str:
    """How the metric changes without the part."""
    return f"{-gain.high:+.4f} to {-gain.low:+.4f}"


def _read_groups(contributions: Contributions) -> Iterator[str]:
    """For each part the group that it gives most, in proportion, and those that it certainly takes from."""
    groups = [group for group in contributions.groups[1:] if group.users >= MIN_USERS]
    for number, part in enumerate(contributions.parts):
        helped = [group for group in groups if group.parts[number].f_gain.low > 0.0]
        harmed = [group for group in groups if group.parts[number].f_gain.high < 0.0]
        if helped:
            most = max(helped, key=lambda group: _relative_gain(group, number))
            yield (
                f"{part.capitalize()} helps most on {most.group}: {_relative_gain(most, number):.0%} of their F@20 "
                "is lost without it."
            )
        for group in harmed:
            yield (
                f"On {group.group} the score is better without {part}: F@20 "
                f"{group.parts[number].without.f.mean:.4f} against {group.whole.f.mean:.4f}."
            )


def _relative_gain(group: GroupContributions, number: int) -> float:
    return group.parts[number].f_gain.mean / group.whole.f.mean


def _read_levels(contributions: Contributions) -> Iterator[str]:
    levels = contributions.levels
    if not levels:
        return
    first, last = levels[0], levels[-1]
    spread = {part: (first.spread[part], last.spread[part]) for part in contributions.parts}
    told = [
        f"{part} {above.mean:.0%} on level {first.level} and {below.mean:.0%} on the leaves"
        for part, (above, below) in spread.items()
        if above is not None and below is not None
    ]
    if told and len(levels) > 1:
        yield f"Share of the spread of scores over the beam: {', '.join(told)}."
    if len(levels) < 2:
        return
    inner = levels[-2]
    kept = [f"{inner.recall_without[part].mean:.1%} without {part}" for part in contributions.parts]
    yield (
        f"Down to level {inner.level}, the beam keeps the ancestors of {inner.recall.mean:.1%} of the exact top 20, "
        f"{' and '.join(kept)}."
    )


def _metrics_table(contributions: Contributions) -> Table:
    rows: list[tuple[str, ...]] = []
    for group in contributions.groups:
        name = f"{group.group} ({group.users:,})"
        rows.append((name, "whole score", cell(group.whole.f, digits=4), "", cell(group.whole.ndcg, digits=4), ""))
        for part in (
            group.parts if len(group.parts) > 2 else ()
        ):  # of two parts, one alone is the score without the other
            alone = part.alone
            rows.append(("", f"{part.part} alone", cell(alone.f, digits=4), "", cell(alone.ndcg, digits=4), ""))
        for part in group.parts:
            without = part.without
            rows.append(
                (
                    "",
                    f"without {part.part}",
                    cell(without.f, digits=4),
                    _lost(part.f_gain),
                    cell(without.ndcg, digits=4),
                    _lost(part.ndcg_gain),
                )
            )
    return Table(("users", "score", "F@20", "lost without", "NDCG@20", "lost without"), tuple(rows), texts=(0, 1))


def _lost(gain: Bounded) -> str:
    return f"{gain.mean:+.4f} [{gain.low:+.4f}, {gain.high:+.4f}]"


def _levels_table(contributions: Contributions) -> Table:
    rows = [
        (
            str(level.level),
            f"{level.nodes:,}",
            *(share_cell(level.spread[part]) for part in contributions.parts),
            share_cell(level.recall),
            *(share_cell(level.recall_without[part]) for part in contributions.parts),
        )
        for level in contributions.levels
    ]
    spreads, kept = ([f"{what} {part}" for part in contributions.parts] for what in ("spread of", "kept without"))
    return Table(("level", "nodes", *spreads, "kept", *kept), tuple(rows))


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
