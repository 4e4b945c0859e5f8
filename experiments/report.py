"""docs/results.md and its figures, from what `beamtree compare` and `beamtree reproduce` left in results/.

python -m experiments.report

Folders: results/compare/<log>/ and results/reproduce/<experiment>-<log>/, each as the command's --out left it; what is
unfinished is shown as far as it is. Figures go to docs/figures/.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

from beamtree.compare.curve import read_curves
from beamtree.compare.ratios import order_among_trees, order_sentence, ours_over_others
from beamtree.compare.report import cost_table, describe_summary, markdown_table
from beamtree.compare.reproduce.catalogue import EXPERIMENTS
from beamtree.compare.reproduce.experiment import Evidence, Experiment
from beamtree.compare.summary import METRIC, Row, Summary, summarise
from beamtree.compare.task import read_results
from beamtree.diagnostics.section import Table
from beamtree.storage import replace_text
from experiments.lines import ROOT
from research.experiments import EXPERIMENTS as RESEARCH

ALL: Mapping[str, Experiment] = {**EXPERIMENTS, **RESEARCH}
VIEWS = {"results": ("inference-time", "training-time", "memory")}
"""Experiments that look at the fits of another one."""

INTRODUCTION = """# Results

Every table here is rendered by `python -m experiments.report` from the files that
[`beamtree compare`](how-to/compare.md) and [`beamtree reproduce`](how-to/reproduce.md) wrote to `results/compare/` and
`results/reproduce/`, settings included. Intervals are paired bootstraps over the test users, 95 %: they cover who was
asked, not the seed. ± is the standard deviation over seeds. Systems over SASRec's encoder share one that is trained
once: its time counts for the first of them alone. [Against every baseline](baselines.md) has the default on more logs,
[Studies](studies.md) what was measured with the runner of version 0.1."""
NOTHING = "Nothing has been measured yet."

Figures = dict[str, str]


def render(results: Path) -> tuple[str, Figures]:
    """The page of everything that is in a folder of results, and its figures by file name."""
    figures: Figures = {}
    sections = [block for folder in _folders(results / "compare") for block in _comparison(folder)]
    sections += [block for folder in _folders(results / "reproduce") for block in _experiment(folder, figures)]
    return "\n\n".join(block for block in (INTRODUCTION, *(sections or [NOTHING])) if block) + "\n", figures


def standalone(svg: str) -> str:
    """A figure of a report as a file of its own: in the page's light colours, and with the name spaces of a file."""
    page = files("beamtree.diagnostics").joinpath("page.html").read_text(encoding="utf-8")
    dark_first = reversed(re.findall(r"(--[\w-]+): (#\w+);", page))
    for name, value in {**dict(dark_first), "--font": "sans-serif"}.items():
        svg = svg.replace(f"var({name})", value)
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return svg.replace("<svg ", f'<svg {spaces} style="background: white" ', 1) + "\n"


def _folders(parent: Path) -> list[Path]:
    return sorted(path for path in parent.glob("*") if path.is_dir())


def _comparison(folder: Path) -> Iterator[str]:
    summary = summarise(read_results(folder))
    if not summary.rows:
        return
    yield f"## {folder.name}: every system"
    yield from (describe_summary(summary), _shown(_main_table(summary)), "What it costs:", _shown(cost_table(summary)))
    if (ratios := ours_over_others(summary)) is not None:
        yield from (f"### {folder.name}: ours over each", "Ratios of means over users.", _shown(ratios))
    if (order := order_among_trees(summary)) is not None:
        yield f"### {folder.name}: the paper's order among trees"
        yield from (f"At equal time. {order_sentence(summary)}", _shown(order))
    yield from _missing(summary)


def _experiment(folder: Path, figures: Figures) -> Iterator[str]:
    name = next((name for name in sorted(ALL, key=len, reverse=True) if folder.name.startswith(f"{name}-")), None)
    summary, curves = summarise(read_results(folder)), read_curves(folder)
    if name is None or not (summary.rows or curves):
        return
    log = folder.name.removeprefix(f"{name}-")
    for shown in (name, *VIEWS.get(name, ())):
        experiment, heading = ALL[shown], ALL[shown].heading
        labels = {variant.label for variant in experiment.variants}
        own = [curve for curve in curves if curve.label in labels]
        yield f"## {log}: {shown}"
        yield f"{heading.place} of the paper, {heading.title}. The paper: {heading.finding}"
        for part in experiment.parts(Evidence(experiment.variants, summary, own, with_paper=True)):
            is_told_above = shown != name and part.key == "accuracy"
            if is_told_above or not any(table.rows for table in part.tables):
                continue
            yield from (f"### {log}, {shown}: {part.title}", part.text)
            if part.plot:
                file = f"reproduce-{shown}-{log}-{part.key}.svg"
                figures[file] = standalone(part.plot)
                yield f"![{part.title} on {log}](figures/{file})"
            yield from map(_shown, part.tables)
    yield from _missing(summary)


def _shown(table: Table) -> str:
    return "\n".join(markdown_table(table)) if table.rows else ""


def _main_table(summary: Summary) -> Table:
    header = ("system", "family", "seeds", "F@20", "interval", "NDCG@20", "recall@20", "coverage@20", "to the best")

    def cells(row: Row) -> tuple[str, ...]:
        spread, behind = row.spread(METRIC), row.behind
        return (
            *(row.name, row.family, str(len(row.results))),
            f"{row.metric(METRIC):.4f}" + ("" if spread is None else f" ± {spread:.4f}"),
            f"[{row.interval.low:.4f}, {row.interval.high:.4f}]",
            *(f"{row.metric(name):.4f}" for name in ("ndcg@20", "recall@20")),
            f"{row.metric('coverage@20'):.3f}",
            "" if behind is None else f"{behind.estimate:+.1%} [{behind.low:+.1%}, {behind.high:+.1%}]",
        )

    return Table(header, tuple(map(cells, summary.rows)), (0, 1))


def _missing(summary: Summary) -> Iterator[str]:
    for title, reasons in (("Left out", summary.left_out), ("Failed", summary.failed)):
        if reasons:
            yield from (f"{title}:", "\n".join(f"- {name}: {' '.join(why.split())}" for name, why in reasons.items()))


def main(root: Path = ROOT) -> int:
    """Write the page and its figures; figures of folders that are gone go too."""
    text, drawn = render(root / "results")
    folder = root / "docs" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    for stale in {path.name for path in folder.glob("reproduce-*.svg")} - drawn.keys():
        (folder / stale).unlink()
    for name, svg in drawn.items():
        replace_text(folder / name, svg)
    replace_text(root / "docs" / "results.md", text)
    print(root / "docs" / "results.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
