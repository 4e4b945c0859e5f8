"""docs/results.md and its figures, from what `beamtree compare` and `beamtree reproduce` left in results/.

python -m experiments.report

Folders: results/compare/<log>/ and results/reproduce/<experiment>-<log>/, each as the command's --out left it; what is
unfinished is shown as far as it is. Figures go to docs/figures/.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from beamtree.compare.curve import read_curves
from beamtree.compare.ratios import order_among_trees, order_sentence, ours_over_others
from beamtree.compare.report import cost_table, describe_summary, markdown_table
from beamtree.compare.reproduce.catalogue import EXPERIMENTS
from beamtree.compare.reproduce.experiment import Evidence, Experiment, Part
from beamtree.compare.summary import METRIC, Row, Summary, summarise
from beamtree.compare.task import read_results
from beamtree.diagnostics.section import Table
from beamtree.storage import replace_text
from research.experiments import EXPERIMENTS as RESEARCH

ROOT = Path(__file__).resolve().parents[1]
ALL: Mapping[str, Experiment] = {**EXPERIMENTS, **RESEARCH}
VIEWS = {"results": ("inference-time", "training-time", "memory")}
"""Experiments that look at the fits of another one."""
COLOURS = {
    "--ink-2": "#4f554f",
    "--line": "#e4e1d8",
    "--shade": "#ebe8df",
    "--series-1": "#0f766e",
    "--series-2": "#c2570a",
    "--series-3": "#3f6fb5",
    "--series-4": "#94508a",
    "--font": "sans-serif",
}
"""Of figures that stand alone: those of the report's light theme."""

INTRODUCTION = """# Results

Every table here is rendered by `python -m experiments.report` from the files that
[`beamtree compare`](how-to/compare.md) and [`beamtree reproduce`](how-to/reproduce.md) wrote to `results/compare/` and
`results/reproduce/`, settings included. Intervals are paired bootstraps over the test users, 95 %: they cover who was
asked, not the seed. ± is the standard deviation over seeds. Systems over SASRec's encoder share one that is trained
once: its time counts for the first of them alone. [Against every baseline](rivals.md) has the default on more logs,
[Studies](studies.md) what was measured with the runner of version 0.1.
"""
NOTHING = "Nothing has been measured yet."


@dataclass
class Page:
    """Markdown, and the figures that it shows by file name."""

    lines: list[str] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)

    def add(self, *lines: str) -> None:
        """Add paragraphs."""
        for line in lines:
            if line:
                self.lines += [line, ""]

    def add_table(self, table: Table | None) -> None:
        """Add a table, if there is one with rows."""
        if table is not None and table.rows:
            self.lines += [*markdown_table(table), ""]

    def text(self) -> str:
        """The whole page."""
        return "\n".join(self.lines).rstrip() + "\n"


def render(results: Path) -> Page:
    """The page of everything that is in a folder of results."""
    page = Page()
    page.add(INTRODUCTION.rstrip())
    for folder in _folders(results / "compare"):
        _add_comparison(page, folder)
    for folder in _folders(results / "reproduce"):
        _add_experiment(page, folder)
    if not any(line.startswith("## ") for line in page.lines):
        page.add(NOTHING)
    return page


def standalone(svg: str) -> str:
    """A figure of a report as a file of its own: fixed colours, and the name spaces that a page does not need."""
    for name, value in COLOURS.items():
        svg = svg.replace(f"var({name})", value)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg ", f'<svg {spaces} style="background: white" ', 1) + "\n"


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir())


def _add_comparison(page: Page, folder: Path) -> None:
    summary = summarise(read_results(folder))
    if not summary.rows:
        return
    page.add(f"## {folder.name}: every system", describe_summary(summary))
    page.add_table(_main_table(summary))
    page.add("What it costs:")
    page.add_table(cost_table(summary))
    ratios = ours_over_others(summary)
    if ratios is not None:
        page.add(f"### {folder.name}: ours over each", "Ratios of means over users.")
        page.add_table(ratios)
    order = order_among_trees(summary)
    if order is not None:
        page.add(f"### {folder.name}: the paper's order among trees", f"At equal time. {order_sentence(summary)}")
        page.add_table(order)
    _add_missing(page, summary)


def _add_experiment(page: Page, folder: Path) -> None:
    name = next((name for name in sorted(ALL, key=len, reverse=True) if folder.name.startswith(f"{name}-")), None)
    if name is None:
        return
    log, summary, curves = folder.name.removeprefix(f"{name}-"), summarise(read_results(folder)), read_curves(folder)
    if not summary.rows and not curves:
        return
    for shown in (name, *VIEWS.get(name, ())):
        experiment, is_view = ALL[shown], shown != name
        labels = {variant.label for variant in experiment.variants}
        own = [curve for curve in curves if curve.label in labels]
        evidence = Evidence(experiment.variants, summary, own, with_paper=True)
        heading = experiment.heading
        page.add(f"## {log}: {shown}", f"{heading.place} of the paper, {heading.title}. The paper: {heading.finding}")
        for part in _filled(experiment, evidence):
            if is_view and part.key == "accuracy":
                continue
            page.add(f"### {log}, {shown}: {part.title}", part.text)
            if part.plot:
                file = f"reproduce-{shown}-{log}-{part.key}.svg"
                page.figures[file] = standalone(part.plot)
                page.add(f"![{part.title} on {log}](figures/{file})")
            for table in part.tables:
                page.add_table(table)
    _add_missing(page, summary)


def _filled(experiment: Experiment, evidence: Evidence) -> list[Part]:
    return [part for part in experiment.parts(evidence) if any(table.rows for table in part.tables)]


def _main_table(summary: Summary) -> Table:
    header = ("system", "family", "seeds", "F@20", "interval", "NDCG@20", "recall@20", "coverage@20", "to the best")

    def cells(row: Row) -> tuple[str, ...]:
        spread, behind = row.spread(METRIC), row.behind
        return (
            row.name,
            row.family,
            str(len(row.results)),
            f"{row.metric(METRIC):.4f}" + ("" if spread is None else f" ± {spread:.4f}"),
            f"[{row.interval.low:.4f}, {row.interval.high:.4f}]",
            *(f"{row.metric(name):.4f}" for name in ("ndcg@20", "recall@20")),
            f"{row.metric('coverage@20'):.3f}",
            "" if behind is None else f"{behind.estimate:+.1%} [{behind.low:+.1%}, {behind.high:+.1%}]",
        )

    return Table(header, tuple(map(cells, summary.rows)), (0, 1))


def _add_missing(page: Page, summary: Summary) -> None:
    for title, reasons in (("Left out", summary.left_out), ("Failed", summary.failed)):
        if reasons:
            page.add(f"{title}:", "\n".join(f"- {name}: {' '.join(why.split())}" for name, why in reasons.items()))


def main(root: Path = ROOT) -> int:
    """Write the page and its figures."""
    page = render(root / "results")
    figures = root / "docs" / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    for stale in figures.glob("reproduce-*.svg"):
        if stale.name not in page.figures:
            stale.unlink()
    for name, svg in page.figures.items():
        replace_text(figures / name, svg)
    replace_text(root / "docs" / "results.md", page.text())
    print(root / "docs" / "results.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
