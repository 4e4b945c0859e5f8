"""Trials that belong together: the paper's sensitivity studies, many rounds, and normalisation."""

from experiments.figures import Figures, study_figure
from experiments.markdown import describe_asked, table
from experiments.paper import STUDIES
from experiments.results import Line, is_replaced
from experiments.rounds_table import rounds_table
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped

MANY_ROUNDS = 4
"""Trials of so many rounds are shown round by round."""


def study_sections(lines: list[Line], *, figures: Figures) -> list[str]:
    """A figure and a table for each study and data set."""
    if not lines:
        return []
    parts = ["## Sensitivity", "Trials on the validation users, most of them shorter than the faithful runs above."]
    for (study, data), own in sorted(grouped(lines, lambda line: (line["study"]["study"], line["data"])).items()):
        title, finding = STUDIES.get(study, (study, ""))
        name = f"study-{study}-{data}.svg"
        figures[name] = study_figure(own, title=f"{title} on {data}", across=title.lower())
        parts.append(f"### {title} on {data}")
        parts.append(f"![Validation F@20 over {title.lower()} on {data}](figures/{name})")
        parts.append(_study_table(own))
        parts.append(
            f"{describe_asked(own)}" + (f" The paper: {finding}." if finding else "") + f" Here: {_extremes(own)}."
        )
    return parts


def many_rounds_sections(rounds: list[Line]) -> list[str]:
    """Trials that relearn the tree again and again, round by round; rounds: their lines at the end of each."""
    alone = [line for line in rounds if line["study"] is None and not is_replaced(line)]
    long_ones = {line["started"] for line in alone if line["round"] >= MANY_ROUNDS - 1}
    many = [line for line in alone if line["started"] in long_ones]
    parts = ["## Many rounds", "Trials on the validation users, at the end of each round."] if many else []
    for data, own in sorted(grouped(many, lambda line: line["data"]).items()):
        by_trial = grouped(own, lambda line: f"{SYSTEM_NAMES[line['system']]}, {line['note']}")
        parts += [f"### Many rounds on {data}", rounds_table(by_trial)]
    return parts


def _study_table(lines: list[Line]) -> str:
    values = sorted({line["study"]["value"] for line in lines})
    rows = []
    for system in ORDER:
        own = grouped([line for line in lines if line["system"] == system], lambda line: line["study"]["value"])
        if own:
            cells = [
                Spread.of([line["metrics"]["f@20"] for line in own[value]]).text() if value in own else ""
                for value in values
            ]
            rows.append([SYSTEM_NAMES[system], *cells])
    return table(["validation F@20", *(f"{value:g}" for value in values)], rows)


def _extremes(lines: list[Line]) -> str:
    """Where each system is at its best and at its worst."""
    found = []
    for system in ORDER:
        own = grouped([line for line in lines if line["system"] == system], lambda line: line["study"]["value"])
        means = {value: Spread.of([line["metrics"]["f@20"] for line in own[value]]).mean for value in sorted(own)}
        if len(means) > 1:
            best, worst = max(means, key=lambda value: means[value]), min(means, key=lambda value: means[value])
            gain = 100 * (means[best] / means[worst] - 1) if means[worst] else 0.0
            found.append(f"{SYSTEM_NAMES[system]} is best at {best:g}, {gain:.1f} % above its worst at {worst:g}")
    return "; ".join(found)


def normalisation_section(lines: list[Line]) -> list[str]:
    """The lines of the benchmark that settled the default."""
    if not lines:
        return []
    rows = [
        [
            line["log"],
            line["normalisation"],
            f"{line['dropout']:g}",
            f"{line['instances']:,}",
            f"{line['seconds']:,.0f}",
            *(f"{line['metrics'][metric]:.4f}" for metric in ("f@20", "recall@20", "ndcg@20")),
        ]
        for line in lines
    ]
    header = ["data", "normalisation", "dropout", "instances", "seconds", "F@20", "recall@20", "NDCG@20"]
    protocols = ", ".join(sorted({line["protocol"] for line in lines}))
    return [
        "## Normalisation and dropout",
        f"`python -m benchmarks.normalisation`, preset small, validation users ({protocols}).",
        table(header, rows),
    ]
