"""Sections of the reports of experiments: accuracy and costs beside the published ones, sweeps, curves."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from beamtree.compare.curve import Curve
from beamtree.compare.ratios import order_among_trees, order_sentence, ours_over_others, ratio, shown
from beamtree.compare.reproduce.experiment import Evidence, Part, Variant
from beamtree.compare.reproduce.paper import COMPARABLE, LOGS, CostTable, published_accuracy, published_costs
from beamtree.compare.summary import METRIC, Row
from beamtree.diagnostics.section import Table

REFERENCE = "dtr-t-rl"
"""What ratios are taken to."""
Cost = Callable[[Row], float | None]
Published = Mapping[str, Mapping[str, float]]


def accuracy_part(evidence: Evidence) -> Part:
    """F@20 of every system in proportion to DTR(T-RL), the paper's beside."""
    rows = evidence.rows()
    reference = _reference(rows)
    published = published_accuracy()

    def here(variant: Variant, row: Row) -> tuple[str, ...]:
        of_reference = None if reference is None or row is reference else ratio(row, reference)
        return (variant.published_as or row.name, f"{row.metric(METRIC):.4f}", shown(of_reference))

    header = ("system", "F@20", f"over {REFERENCE}")
    table = _beside(rows, here, header, published, form="{:.4f}") if evidence.with_paper else None
    plain = Table(header, tuple(here(variant, row) for variant, row in rows))
    text = "F@20 of the test users; ratios with a paired bootstrap over users, 95 %."
    return Part("accuracy", "Accuracy", _with_remark(text, evidence), [table or plain])


def order_part(evidence: Evidence) -> Part:
    """Whether the paper's ranking of trees holds, and the ratio of ours to each system."""
    tables = [order_among_trees(evidence.summary), ours_over_others(evidence.summary)]
    text = order_sentence(evidence.summary) or "Fewer than two of the paper's trees are measured."
    return Part(
        "order", "The ranking of trees, and ours over each system", text, [one for one in tables if one is not None]
    )


def cost_part(evidence: Evidence, *, title: str, unit: str, of_row: Cost, published: CostTable) -> Part:
    """One cost of every system, and in proportion to the reference; the paper's beside."""
    rows = [(variant, row) for variant, row in evidence.rows() if of_row(row) is not None]
    costs = {row.name: of_row(row) or 0.0 for _, row in rows}
    base = costs.get(REFERENCE)

    def here(variant: Variant, row: Row) -> tuple[str, ...]:
        proportion = "" if not base else f"{costs[row.name] / base:.2f}"
        return (variant.published_as or row.name, f"{costs[row.name]:.3g}", proportion)

    header = ("system", unit, f"over {REFERENCE}")
    table = Table(header, tuple(here(variant, row) for variant, row in rows))
    if evidence.with_paper:
        table = _beside(rows, here, header, _all_dtr(published_costs(published)), form="{:.4g}")
    return Part("costs", title, _with_remark(f"{title}, {unit}.", evidence), [table])


def seconds_of_all(row: Row) -> float | None:
    """Seconds for all test users together, as the paper has them."""
    each = row.mean("ms_batch")
    return None if each is None else each * row.results[0]["users"] / 1000


def seconds_of_thousand_steps(row: Row) -> float | None:
    """Seconds per 1,000 steps of what is named as the system, or of the last that learned."""
    found = []
    for result in row.results:
        of_learners: dict[str, float] = result.get("step_seconds", {})
        if of_learners:
            found.append(of_learners.get(result["system"], list(of_learners.values())[-1]))
    return 1000 * float(np.mean(found)) if found else None


def megabytes(row: Row) -> float | None:
    """Size of the index."""
    size = row.mean("index_bytes")
    return None if size is None else size / 1e6


def sweep_part(evidence: Evidence, *, axis: str) -> Part:
    """F@20 of each system over a setting: a line and a column each, and what the last point gains on the first."""
    by_system: dict[str, list[tuple[float, Row]]] = {}
    for variant, row in evidence.rows():
        if variant.at is not None:
            by_system.setdefault(variant.system, []).append((variant.at, row))
    places = sorted({at for points in by_system.values() for at, _ in points})
    cells = {(system, at): row for system, points in by_system.items() for at, row in points}
    table = Table(
        (axis, *by_system),
        tuple(
            (f"{at:g}", *(_figure(cells[system, at]) if (system, at) in cells else "" for system in by_system))
            for at in places
        ),
    )
    gains = Table(
        ("system", "best at", f"last over first {axis}"),
        tuple(
            (
                system,
                f"{_best_place(points):g}",
                shown(ratio(points[-1][1], points[0][1])),
            )
            for system, points in by_system.items()
            if len(points) > 1
        ),
    )
    lines = {system: [(at, row.metric(METRIC)) for at, row in points] for system, points in by_system.items()}
    text = f"F@20 of the test users over {axis}; ± is the standard deviation over seeds."
    return Part("sweep", axis[:1].upper() + axis[1:], text, [table, gains], plot_lines(lines, x=axis))


def rounds_part(evidence: Evidence) -> Part:
    """F@20 after each round of model and tree."""
    by_name = _by_name(evidence.curves)
    lines = {
        name: _mean_by([[(one["round"] + 1, one["f@20"]) for one in curve.rounds] for curve in curves])
        for name, curves in by_name.items()
    }
    lines = {name: points for name, points in lines.items() if points}
    rounds = sorted({x for points in lines.values() for x, _ in points})
    table = Table(
        ("round", *lines),
        tuple((f"{at:g}", *(_at(points, at) for points in lines.values())) for at in rounds),
    )
    text = (
        "F@20 of validation users with the best weights of each round; between rounds the tree is relearned. Means "
        "over the seeds that reached the round."
    )
    return Part("rounds", "F@20 over rounds", text, [table], plot_lines(lines, x="round"))


def instances_part(evidence: Evidence) -> Part:
    """F@20 over the instances that were learned from, of everything that left a curve."""
    by_name = _by_name(evidence.curves)
    lines = {
        name: _mean_by([[(one["instances"], one["f@20"]) for one in curve.points] for curve in curves])
        for name, curves in by_name.items()
    }
    lines = {name: points for name, points in lines.items() if points}
    rows = tuple(
        (
            name,
            str(len(by_name[name])),
            f"{points[-1][0]:,.0f}",
            f"{points[-1][1]:.4f}",
            f"{max(value for _, value in points):.4f}",
        )
        for name, points in lines.items()
    )
    table = Table(("system", "seeds", "instances so far", "latest F@20", "highest F@20"), rows)
    text = (
        "F@20 of validation users during training, with the chosen learning rate. Unfinished curves are "
        "shown so far; a system initialised from another includes that one's instances."
    )
    return Part("instances", "F@20 over instances", text, [table], plot_lines(lines, x="instances"))


def _best_place(points: Sequence[tuple[float, Row]]) -> float:
    return max(points, key=lambda point: point[1].metric(METRIC))[0]


def _by_name(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    found: dict[str, list[Curve]] = {}
    for curve in curves:
        found.setdefault(curve.label, []).append(curve)
    return found


def _mean_by(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """The mean of several curves wherever any of them has a point."""
    values: dict[float, list[float]] = {}
    for points in curves:
        for x, y in points:
            values.setdefault(x, []).append(y)
    return [(x, float(np.mean(values[x]))) for x in sorted(values)]


def _at(points: Sequence[tuple[float, float]], at: float) -> str:
    return next((f"{y:.4f}" for x, y in points if x == at), "")


def _figure(row: Row) -> str:
    spread = row.spread(METRIC)
    return f"{row.metric(METRIC):.4f}" + ("" if spread is None else f" ± {spread:.4f}")


def _reference(rows: Sequence[tuple[Variant, Row]]) -> Row | None:
    return next((row for variant, row in rows if variant.system == REFERENCE), None)


def _with_remark(text: str, evidence: Evidence) -> str:
    return f"{text} {COMPARABLE}" if evidence.with_paper else text


def _all_dtr(published: Published) -> Published:
    """Where the paper has one figure for all variants of DTR, that for each."""
    variants = ("DTR(U)", "DTR(T)", "DTR(T-RL)")
    return {
        log: {**dict.fromkeys(variants, values["DTR"]), **values} if "DTR" in values else values
        for log, values in published.items()
    }


def _beside(
    rows: Sequence[tuple[Variant, Row]],
    here: Callable[[Variant, Row], tuple[str, ...]],
    header: tuple[str, ...],
    published: Published,
    *,
    form: str,
) -> Table:
    """A table of ours with the paper's figure and its proportion to DTR(T-RL) on each of its logs."""

    def of_paper(variant: Variant) -> tuple[str, ...]:
        found = []
        for log in LOGS:
            value = None if variant.published_as is None else published[log].get(variant.published_as)
            base = published[log]["DTR(T-RL)"]
            found.append("" if value is None else f"{form.format(value)} ({value / base:.2f})")
        return tuple(found)

    shown_rows = tuple((*here(variant, row), *of_paper(variant)) for variant, row in rows)
    return Table((*header, *(f"paper, {log}" for log in LOGS)), shown_rows)


Points = Sequence[tuple[float, float]]
DASHES = ("-", "--", ":")


def plot_lines(lines: Mapping[str, Points], *, x: str, y: str = "F@20", log_x: bool = False) -> str:
    """A line for each name; empty text where there is none with a point."""
    from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg

    colours = (*SERIES, INK)
    drawn = {name: points for name, points in lines.items() if points}
    if not drawn:
        return ""
    with figure_style():
        figure, [axes] = panels(height=3.4)
        for place, (name, points) in enumerate(drawn.items()):
            axes.plot(
                [at for at, _ in points],
                [value for _, value in points],
                marker="o",
                markersize=3.0,
                label=name,
                color=colours[place % len(colours)],
                linestyle=DASHES[place // len(colours) % len(DASHES)],
            )
        if log_x:
            axes.set_xscale("log")
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(axis="x", color=FAINT)
        axes.legend(fontsize=8)
        return to_svg(figure, description=f"{y} over {x}: {', '.join(drawn)}")
