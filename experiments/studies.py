"""What was tried: sensitivity studies, normalisation, and every trial in a row."""

from collections import Counter
from pathlib import Path

from experiments.figures import study_figure
from experiments.markdown import compact, describe_asked, table
from experiments.paper import STUDIES
from experiments.results import Line
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped, settings_of, varying_settings


def study_sections(lines: list[Line], *, figures: Path) -> list[str]:
    """A figure and a table for each study and data set."""
    if not lines:
        return []
    parts = ["## Sensitivity", "Trials on the validation users, most of them shorter than the faithful runs above."]
    for (study, data), own in sorted(grouped(lines, lambda line: (line["study"]["study"], line["data"])).items()):
        title, finding = STUDIES.get(study, (study, ""))
        name = f"study-{study}-{data}.svg"
        study_figure(figures / name, own, title=f"{title} on {data}", across=title.lower())
        parts.append(f"### {title} on {data}")
        parts.append(f"![Validation F@20 over {title.lower()} on {data}](figures/{name})")
        parts.append(_study_table(own))
        parts.append(
            f"{describe_asked(own)}" + (f" The paper: {finding}." if finding else "") + f" Here: {_extremes(own)}."
        )
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


def trial_sections(lines: list[Line]) -> list[str]:
    """Every trial in a row, with the settings that are not the same in all trials on its data set."""
    if not lines:
        return []
    parts = [
        "## All trials",
        "Validation users. The last column has the settings in which a trial differs from most others of its table.",
    ]
    for data, own in grouped(lines, lambda line: line["data"]).items():
        usual = _usual_settings(own)
        rows = []
        for line in own:
            flat = settings_of(line)
            changes = [
                f"{name}={compact(flat[name])}"
                for name, value in usual.items()
                if name in flat and compact(flat[name]) != value
            ]
            rows.append(
                [
                    line["settings"]["file"].removesuffix(".toml"),
                    SYSTEM_NAMES[line["system"]],
                    str(line["seed"]),
                    *(f"{line['metrics'][metric]:.4f}" for metric in ("f@20", "recall@20", "ndcg@20")),
                    f"{line['instances']:,}",
                    f"{line['seconds']:,.0f}",
                    "; ".join([line["note"], *changes] if line["note"] else changes),
                ]
            )
        header = ["trial", "system", "seed", "F@20", "recall@20", "NDCG@20", "instances", "seconds", "what"]
        parts.append(f"### Trials on {data}")
        if usual:
            settings = ", ".join(f"{name}={value}" for name, value in usual.items())
            parts.append(f"Usual settings, of those that vary: {settings}.")
        parts.append(table(header, rows))
    return parts


def _usual_settings(lines: list[Line]) -> dict[str, str]:
    """Of the settings that are not the same in all lines the value that most have, as text."""
    flat = [settings_of(line) for line in lines]
    values = {
        name: Counter(compact(settings[name]) for settings in flat if name in settings)
        for name in varying_settings(lines)
    }
    return {name: counts.most_common(1)[0][0] for name, counts in values.items()}
