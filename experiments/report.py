"""Render docs/results.md with its figures, and docs/trials.md, from the measured lines.

    python -m experiments.report

The output depends on the lines, on results/remarks.md, what people read out of them, and on what the preset `paper`
says: the same files give the same bytes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beamtree.errors import BeamtreeError
from experiments.comparison import ROLES, glance, role_section
from experiments.equal_time import STUDY as TIME
from experiments.equal_time import equal_time_sections
from experiments.figures import Figures
from experiments.paper import STANDS_FOR, in_order
from experiments.remarks import fill_in
from experiments.results import read_lines
from experiments.studies import many_rounds_sections, normalisation_section, study_sections
from experiments.summary import Runs, grouped
from experiments.theory_tables import theory_section
from experiments.trials_page import render_trials

ROOT = Path(__file__).resolve().parents[1]
INTRODUCTION = """\
# Results

Every figure on this page was measured by `python -m experiments.run` and stands in
[results/runs.jsonl](../results/runs.jsonl) or [results/trials.jsonl](../results/trials.jsonl), with all settings and
the commit; those on normalisation by `python -m benchmarks.normalisation`, in
[results/normalisation.jsonl](../results/normalisation.jsonl). This page is made from these files by
`python -m experiments.report`, the figures in its text too. What was tried on the way is on the
[page of trials](trials.md).

- **Faithful** rows: as the paper has it. **Best** rows: as good as we can make it. They are never mixed.
- **Trials** ask only the validation users. Who is held out is the same in every run, whatever its seed.
- ± is the standard deviation over the seeds. A ratio is taken seed by seed, then averaged.
- Instances are histories with their targets that training saw, over all rounds. Seconds are wall-clock of training
  on two cores, orders of magnitude where they were shared. Of these, DTR(T-RL) spends some on SASRec and its labels;
  a second fit finds SASRec kept, and beside it stands what it would then spend on labels, with its share of the rest.
- A ratio on the validation users, from the same runs, shows how much of it the choice of users decides: there are some
  hundred of either. Settings were chosen on these users, so that they flatter whatever was tuned.
- F@20 of unseen: when the items of a user's history are left out, which the paper's protocol does not do; seen in the
  20: their share of the lists when they are not. Runs from before these were measured lack them."""


@dataclass(frozen=True)
class Sources:
    """The files that the report is made from."""

    runs: Path
    trials: Path
    normalisation: Path
    remarks: Path

    @classmethod
    def below(cls, folder: Path) -> "Sources":
        """The files of a results folder."""
        return cls(
            folder / "runs.jsonl", folder / "trials.jsonl", folder / "normalisation.jsonl", folder / "remarks.md"
        )


@dataclass(frozen=True)
class Pages:
    """What the report consists of."""

    results: str
    trials: str
    figures: Figures


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the pages and their figures; 0 when they were written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the measured lines")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for the pages and figures/")
    given = parser.parse_args(arguments)
    try:
        pages = render(Sources.below(given.results))
    except BeamtreeError as error:
        print(error, file=sys.stderr)
        return 2
    write(pages, given.docs)
    print(f"wrote {given.docs / 'results.md'} and {given.docs / 'trials.md'}")
    return 0


def write(pages: Pages, docs: Path) -> None:
    """The pages into a folder, and their figures into one below it; figures of earlier pages go."""
    figures = docs / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    (docs / "results.md").write_text(pages.results, encoding="utf-8")
    (docs / "trials.md").write_text(pages.trials, encoding="utf-8")
    for name, drawn in pages.figures.items():
        (figures / name).write_bytes(drawn)
    for old in figures.glob("*.svg"):
        if old.name not in pages.figures:
            old.unlink()


def render(sources: Sources) -> Pages:
    """Both pages as Markdown, and the figures that they show."""
    figures: Figures = {}
    runs = Runs.of(read_lines(sources.runs))
    trials = Runs.of(read_lines(sources.trials))
    studies = [line for line in trials.final if line["study"] is not None]
    parts = [INTRODUCTION, *glance(runs.final)]
    if sources.remarks.is_file():
        parts.append(fill_in(sources.remarks.read_text(encoding="utf-8").strip(), runs=runs, trials=trials))
    if not runs.final:
        parts.append("No run has been tested yet.")
    by_data = grouped(runs.final, lambda line: line["data"])
    for data in sorted(by_data, key=in_order):
        lines = by_data[data]
        parts.append(f"## {data}")
        if data in STANDS_FOR:
            parts.append(f"Stands for the paper's {STANDS_FOR[data]}.")
        for role in ROLES:
            own = [line for line in lines if line["role"] == role]
            if own:
                validation, rounds = (
                    [line for line in of_runs if line["data"] == data and line["role"] == role]
                    for of_runs in (runs.validation, runs.rounds)
                )
                parts += role_section(own, validation, rounds, data=data, role=role, figures=figures)
                if role == "faithful":
                    longer = [line for line in studies if line["data"] == data and line["study"]["study"] == TIME]
                    parts += equal_time_sections(validation, longer, data=data, figures=figures)
                    parts += theory_section(validation, data=data)
    parts += study_sections([line for line in studies if line["study"]["study"] != TIME], figures=figures)
    parts += many_rounds_sections(trials.rounds)
    parts += normalisation_section(read_lines(sources.normalisation))
    return Pages("\n\n".join(parts) + "\n", render_trials(trials.final), figures)


if __name__ == "__main__":
    sys.exit(main())
