"""The report of a comparison: Markdown for a terminal or a wiki, and one self-contained HTML page."""

import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from beamtree.compare.plots import plot_accuracy, plot_latency, plot_size
from beamtree.compare.ratios import order_among_trees, order_sentence, ours_over_others
from beamtree.compare.summary import METRIC, Row, Summary
from beamtree.diagnostics.headlines import Headline
from beamtree.diagnostics.page import render
from beamtree.diagnostics.section import Section, Table

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
    missing = [
        Table(
            ("system", "reason"),
            tuple((name, " ".join(why.split())) for name, why in reasons.items()),
            (0, 1),
        )
        for reasons in ({**summary.left_out, **summary.failed},)
        if reasons
    ]
    size = plot_size(summary)
    ratios = [one for one in (ours_over_others(summary), order_among_trees(summary)) if one is not None]
    sections = [
        Section(
            "accuracy",
            "Accuracy",
            "Metrics on held-out test users.",
            "",
            plot_accuracy(summary),
            tables=(),
            definition="Metrics are computed per user and averaged. The interval of a system is a bootstrap over "
            "users. The last column compares with the best system on the same users (paired bootstrap). ± is the "
            "standard deviation over seeds.",
            remedy="",
            shown=(accuracy_table(summary),),
        ),
        *([_ratio_section(summary, ratios)] if ratios else []),
        Section(
            "latency",
            "Accuracy against latency",
            "Latency of single requests on this machine. A curve is an index swept over its search effort.",
            "",
            plot_latency(summary),
            tables=(_sweep_table(summary),),
            definition="Median over up to 200 test users, one request at a time, k = 20; brute-force systems score "
            "every item. The curve of an index is measured on up to 1,000 users.",
            remedy="",
            shown=(cost_table(summary),),
        ),
        Section(
            "lists",
            "Properties of the lists",
            "Coverage is the share of the catalogue that is recommended; novelty is the self-information of "
            "recommended items, in bits; distinct lists near 0 mean that all users get the same.",
            "",
            size or "",
            tables=(),
            definition="Users in thirds by the length of their history, F@20; labels in thirds by the popularity of "
            "their item, recall@20. The figure, if any, shows the size of indexes.",
            remedy="",
            shown=(_list_table(summary), _group_table(summary), *missing),
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
        order_sentence(summary),
        "",
        tables=(),
        definition="Ratios of means over users and seeds; intervals: paired bootstrap over users, 95 %.",
        remedy="",
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
    header = (
        "system",
        "fit, s",
        "of CPU, s",
        "s per 1,000 steps",
        "ms single, p50",
        "p99",
        "ms in batch",
        "index, MB",
        "peak memory, MB",
    )
    rows = []
    for row in summary.rows:
        seconds, steps, size = row.mean("fit_seconds"), row.mean("steps"), row.mean("index_bytes")
        rows.append(
            (
                row.name,
                _number(seconds, ".1f"),
                _number(row.mean("cpu_seconds"), ".1f"),
                _number(1000 * (seconds or 0.0) / steps if steps else None, ".1f"),
                _number(row.mean("ms_single"), ".3f"),
                _number(row.mean("ms_single_p99"), ".3f"),
                _number(row.mean("ms_batch"), ".3f"),
                _number(None if size is None else size / 1e6, ".1f"),
                _number(row.mean("peak_memory_mb"), ".0f"),
            )
        )
    return Table(header, tuple(rows))


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


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def markdown_table(table: Table) -> list[str]:
    """The lines of a table; columns of numbers are aligned to the right."""
    rule = ["---" if column in table.texts else "---:" for column in range(len(table.header))]
    return [markdown_row(cells) for cells in (table.header, rule, *table.rows)]


def markdown_row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cells) + " |"
