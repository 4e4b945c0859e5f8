"""The report of a comparison as files: Markdown for a terminal or a wiki, and one self-contained HTML page."""

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from matplotlib.axes import Axes

from beamtree.compare.ratios import order_among_trees, order_sentence, ours_over_others
from beamtree.compare.summary import METRIC, Result, Row, Summary, summarise, sweeps, table
from beamtree.diagnostics.headlines import Headline
from beamtree.diagnostics.page import render
from beamtree.diagnostics.section import Section, Table, table_of
from beamtree.diagnostics.svg import FAINT, INK, SERIES, figure_style, panels, to_svg
from beamtree.storage import replace_file, replace_text

LIBRARIES = ("beamtree", "torch", "numpy", "polars", "scipy", "implicit", "faiss-cpu", "scann", "torch_geometric")


@dataclass(frozen=True)
class About:
    """log: what was compared on; budget_minutes: for each fit; command: what repeats it."""

    log: str
    budget_minutes: float
    seeds: int
    command: str


def markdown(summary: Summary, about: About) -> str:
    """The main table and what is missing from it."""
    lines = [f"# Comparison on {about.log}", "", describe_summary(summary), ""]
    ratios = ours_over_others(summary)
    for one in (accuracy_table(summary), cost_table(summary), ratios):
        lines += [] if one is None else [*markdown_table(one), ""]
    for title, reasons in (("Left out", summary.left_out), ("Failed", summary.failed)):
        if reasons:
            lines += [f"{title}:", "", *(f"- {name}: {' '.join(why.split())}" for name, why in reasons.items()), ""]
    return "\n".join([*lines, describe_machine(), "", f"Repeat with: `{about.command}`", ""])


def page(summary: Summary, about: About) -> str:
    """The whole report as HTML."""
    reasons = {**summary.left_out, **summary.failed}
    missing = Table(("system", "reason"), tuple((name, " ".join(why.split())) for name, why in reasons.items()), (0, 1))
    ratios = [one for one in (ours_over_others(summary), order_among_trees(summary)) if one is not None]
    sections = [
        Section(
            "accuracy",
            "Accuracy",
            "Metrics on held-out test users.",
            plot=plot_accuracy(summary),
            definition="Metrics are computed per user and averaged. The interval of a system is a bootstrap over "
            "users. The last column compares with the best system on the same users (paired bootstrap). ± is the "
            "standard deviation over seeds.",
            shown=(accuracy_table(summary),),
        ),
        *([_ratio_section(summary, ratios)] if ratios else []),
        Section(
            "latency",
            "Accuracy against latency",
            "Latency of single requests on this machine. A curve is an index swept over its search effort.",
            plot=plot_latency(summary),
            tables=(_sweep_table(summary),),
            definition="Median over up to 200 test users, one request at a time, k = 20; brute-force systems score "
            "every item. The curve of an index is measured on up to 1,000 users.",
            shown=(cost_table(summary),),
        ),
        Section(
            "lists",
            "Properties of the lists",
            "Coverage is the share of the catalogue that is recommended; novelty is the self-information of "
            "recommended items, in bits; distinct lists near 0 mean that all users get the same.",
            plot=plot_size(summary) or "",
            definition="Users in thirds by the length of their history, F@20; labels in thirds by the popularity of "
            "their item, recall@20. The figure, if any, shows the size of indexes.",
            shown=(_list_table(summary), _group_table(summary), *([missing] if reasons else [])),
        ),
    ]
    return render(
        title=f"Comparison on {about.log}",
        about=describe_summary(summary),
        headlines=_headlines(summary),
        groups=[("Comparison", sections)],
        footer=f"{describe_machine()} At most {about.budget_minutes:g} minutes for each fit, seeds: {about.seeds}. "
        f"Numbers: results.parquet, sweeps.parquet, results.json. Repeat with: {about.command}",
    )


def _ratio_section(summary: Summary, ratios: Sequence[Table]) -> Section:
    return Section(
        "ratios",
        "Ours over each system",
        "Ratios of the default to each system, and whether the paper's ranking of trees holds here.",
        reading=order_sentence(summary),
        definition="Ratios of means over users and seeds; intervals: paired bootstrap over users, 95 %.",
        shown=tuple(ratios),
    )


def _headlines(summary: Summary) -> list[Headline]:
    best = summary.rows[0]
    found = [Headline("Best F@20", f"{best.metric(METRIC):.4f}", best.name)]
    if len(summary.rows) > 1:
        second = summary.rows[1]
        behind = "" if second.behind is None else f"{second.behind.estimate:+.1%} to the best"
        found.append(Headline("Second", f"{second.metric(METRIC):.4f}", f"{second.name}, {behind}"))
    fastest = min(summary.rows, key=lambda row: row.mean("ms_single") or 0.0)
    found.append(Headline("Fastest request", f"{fastest.mean('ms_single'):.2f} ms", fastest.name))
    return found


def describe_summary(summary: Summary) -> str:
    """The best system, and those that are not significantly different from it."""
    best, *others = summary.rows
    result = best.results[0]
    protocol = f"{result['protocol'][:1].upper()}{result['protocol'][1:]}"
    said = f"{result['users']:,} test users, {result['catalogue']:,} items. {protocol}. "
    if not others:
        return said + f"Only {best.name} was measured."
    level = [row.name for row in others if row.behind is not None and row.behind.high >= 0.0]
    if not level:
        return said + f"{best.name} is ahead of all others in F@20, intervals included."
    return said + f"{best.name} has the highest F@20; {', '.join(level)} cannot be told from it on these users."


def accuracy_table(summary: Summary) -> Table:
    """Metrics at all cutoffs, the interval of F@20 and the distance to the best."""
    cutoffs = summary.cutoffs
    names = [f"{metric}@{cutoff}" for cutoff in cutoffs for metric in ("precision", "recall", "f", "ndcg")]
    header = ("system", *(_pretty(name) for name in names), "F@20 interval", "to the best")
    return Table(header, tuple(_accuracy_row(row, names) for row in summary.rows))


def _accuracy_row(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    def shown(name: str) -> str:
        spread = row.spread(name) if name == METRIC else None
        return f"{row.metric(name):.4f}" + ("" if spread is None else f" ± {spread:.4f}")

    behind = "" if row.behind is None else f"{row.behind.estimate:+.1%} [{row.behind.low:+.1%}, {row.behind.high:+.1%}]"
    return (row.name, *map(shown, names), f"[{row.interval.low:.4f}, {row.interval.high:.4f}]", behind)


def cost_table(summary: Summary) -> Table:
    """Costs of fitting and of a request."""
    return table_of(
        summary.rows,
        {
            "system": lambda row: row.name,
            "fit, s": lambda row: _number(row.mean("fit_seconds"), ".1f"),
            "of CPU, s": lambda row: _number(row.mean("cpu_seconds"), ".1f"),
            "s per 1,000 steps": lambda row: _number(_seconds_of_thousand_steps(row), ".1f"),
            "ms single, p50": lambda row: _number(row.mean("ms_single"), ".3f"),
            "p99": lambda row: _number(row.mean("ms_single_p99"), ".3f"),
            "ms in batch": lambda row: _number(row.mean("ms_batch"), ".3f"),
            "index, MB": lambda row: _number(row.mean("index_bytes"), ".1f", unit=1e6),
            "peak memory, MB": lambda row: _number(row.mean("peak_memory_mb"), ".0f"),
        },
    )


def _seconds_of_thousand_steps(row: Row) -> float | None:
    steps = row.mean("steps")
    return 1000 * (row.mean("fit_seconds") or 0.0) / steps if steps else None


def _list_table(summary: Summary) -> Table:
    names = ("coverage@20", "novelty@20", "distinct_lists@20", "hit_rate@20", "mrr@20")
    rows = tuple((row.name, *(f"{row.metric(name):.3f}" for name in names)) for row in summary.rows)
    return Table(("system", *names), rows)


def _group_table(summary: Summary) -> Table:
    header = ("system", "F@20: short histories", "middle", "long", "recall@20: rare items", "middle", "popular")
    rows = tuple(
        (
            row.name,
            *(
                _number(row.mean(kind, group), ".4f")
                for kind in ("by_history", "by_popularity")
                for group in ("low", "middle", "high")
            ),
        )
        for row in summary.rows
    )
    return Table(header, rows)


def _sweep_table(summary: Summary) -> Table:
    rows = tuple(
        (
            row.name,
            f"{row.results[0]['effort_name']} {one['effort']:g}",
            f"{one[METRIC]:.4f}",
            f"{one['ms_single']:.3f}",
        )
        for row in summary.rows
        for one in row.results[0]["sweep"]
    )
    return Table(("system", "effort", "F@20", "ms single"), rows, (0, 1))


def describe_machine() -> str:
    """The machine and the versions of what was used."""
    found = []
    for library in LIBRARIES:
        try:
            found.append(f"{library} {version(library)}")
        except PackageNotFoundError:
            continue
    return f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}; {', '.join(found)}."


def _pretty(name: str) -> str:
    metric, _, cutoff = name.partition("@")
    return f"{ {'f': 'F', 'ndcg': 'NDCG'}.get(metric, metric) }@{cutoff}"


def _number(value: float | None, form: str, *, unit: float = 1.0) -> str:
    return "" if value is None else format(value / unit, form)


def markdown_table(table: Table) -> list[str]:
    """The lines of a table; columns of numbers are aligned to the right."""
    rule = ["---" if column in table.texts else "---:" for column in range(len(table.header))]
    return [markdown_row(cells) for cells in (table.header, rule, *table.rows)]


def markdown_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"


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


def write_report(results: Sequence[Result], about: About, *, directory: Path) -> tuple[Summary, str]:
    """results.json, results.parquet, sweeps.parquet, report.md and report.html; the summary and the Markdown."""
    summary = summarise(results)
    kept = [{name: value for name, value in result.items() if name != "per_user"} for result in results]
    replace_text(directory / "results.json", json.dumps(kept, indent=1) + "\n")
    if not summary.rows:
        reasons = {**summary.left_out, **summary.failed}
        return summary, "\n".join(f"{name}: {why}" for name, why in reasons.items())
    for name, frame in (("results.parquet", table(summary)), ("sweeps.parquet", sweeps(summary))):
        if frame.width:
            replace_file(directory / name, frame.write_parquet)
    text = markdown(summary, about)
    replace_text(directory / "report.md", text)
    replace_text(directory / "report.html", page(summary, about))
    return summary, text
