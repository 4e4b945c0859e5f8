"""The report of an experiment: NAME.html, NAME.md and NAME.json."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from beamtree.compare.report import About, accuracy_table, cost_table, describe_machine, markdown_table
from beamtree.compare.reproduce.experiment import Evidence, Experiment, Part
from beamtree.compare.summary import Result
from beamtree.diagnostics.headlines import Headline
from beamtree.diagnostics.page import render
from beamtree.diagnostics.section import Section
from beamtree.storage import replace_text


def write_experiment(
    experiment: Experiment, evidence: Evidence, results: Sequence[Result], about: About, *, directory: Path
) -> str:
    """Write the three files, of what there is; the Markdown."""
    parts = [part for part in experiment.parts(evidence) if any(table.rows for table in part.tables)]
    if evidence.summary.rows:
        tables = (accuracy_table(evidence.summary), cost_table(evidence.summary))
        text = "All measurements of these fits, the best first."
        parts.append(Part("fits", "All fits", text, tables))
    name = experiment.heading.name
    text = _markdown(experiment, evidence, parts, about)
    replace_text(directory / f"{name}.md", text)
    replace_text(directory / f"{name}.html", _page(experiment, evidence, parts, about))
    kept = {
        "experiment": experiment.heading.facts(),
        "log": about.log,
        "results": [{key: value for key, value in result.items() if key != "per_user"} for result in results],
        "curves": [asdict(curve) for curve in evidence.curves],
    }
    replace_text(directory / f"{name}.json", json.dumps(kept, indent=1) + "\n")
    return text


def _markdown(experiment: Experiment, evidence: Evidence, parts: Sequence[Part], about: About) -> str:
    lines = [f"# {_title(experiment, about)}", "", _sentence(experiment, evidence), ""]
    for part in parts:
        lines += [f"## {part.title}", "", part.text, ""]
        for table in part.tables:
            lines += [*markdown_table(table), ""] if table.rows else []
    for title, reasons in _missing(evidence).items():
        lines += [f"{title}:", "", *(f"- {name}: {' '.join(why.split())}" for name, why in reasons.items()), ""]
    return "\n".join([*lines, describe_machine(), "", f"Repeat with: `{about.command}`", ""])


def _page(experiment: Experiment, evidence: Evidence, parts: Sequence[Part], about: About) -> str:
    missing = " ".join(
        f"{title}: {name} ({' '.join(why.split())})."
        for title, reasons in _missing(evidence).items()
        for name, why in reasons.items()
    )
    sections = [
        Section(
            part.key,
            part.title,
            part.text,
            f"{experiment.heading.place} of the paper. Metrics are computed per user and averaged.",
            plot=part.plot,
            shown=tuple(table for table in part.tables if table.rows),
        )
        for part in parts
    ]
    return render(
        title=_title(experiment, about),
        about=_sentence(experiment, evidence),
        headlines=[
            Headline("Measured", f"{len(evidence.summary.rows)} of {len(evidence.variants)}", "systems and settings"),
            Headline("In the paper", experiment.heading.place, "Learning Deep Tree-based Retriever"),
        ],
        groups=[("Experiment", sections)],
        footer=f"{describe_machine()} {missing} Repeat with: {about.command}",
    )


def _title(experiment: Experiment, about: About) -> str:
    return f"{experiment.heading.name} on {about.log}"


def _sentence(experiment: Experiment, evidence: Evidence) -> str:
    heading = experiment.heading
    said = f"{heading.place} of the paper: {heading.title}. The paper's finding: {heading.finding}"
    if evidence.summary.rows:
        result = evidence.summary.rows[0].results[0]
        protocol = f"{result['protocol'][:1].upper()}{result['protocol'][1:]}"
        said += f" Here: {result['users']:,} test users, {result['catalogue']:,} items. {protocol}."
    return said


def _missing(evidence: Evidence) -> dict[str, dict[str, str]]:
    found = {"Left out": evidence.summary.left_out, "Failed": evidence.summary.failed}
    return {title: reasons for title, reasons in found.items() if reasons}
