"""Take over lines that were measured elsewhere: on another machine, or in another checkout.

    python -m experiments.adopt ELSEWHERE/runs.jsonl --why "items placed in the order of their scores"

ELSEWHERE/trials.jsonl comes along if it is there. A run that stands in results/ already is replaced by a later one, and
what it had measured on the validation users goes to the trials; --why says what sets it apart from the new one.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from beamtree.errors import BeamtreeError, InputError
from experiments.results import append_lines, read_lines, replace_run, standing_since
from experiments.summary import grouped

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> int:
    """Take over all runs of a file, in their order; 0 when that was done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="lines that experiments.run wrote with --out")
    parser.add_argument("--why", required=True, help="what sets the replaced runs apart, for their note")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the measured lines")
    given = parser.parse_args(arguments)
    try:
        adopt(given.runs, given.results, why=given.why)
    except BeamtreeError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def adopt(elsewhere: Path, results: Path, *, why: str) -> None:
    """Take over what is not in the results folder yet."""
    if not elsewhere.is_file():
        raise InputError(f"There is no file {elsewhere}. Name the runs.jsonl that experiments.run wrote with --out.")
    runs, trials = results / "runs.jsonl", results / "trials.jsonl"
    known = {line["started"] for line in (*read_lines(runs), *read_lines(trials))}
    new = [line for line in read_lines(elsewhere) if line["started"] not in known]
    if any(line["role"] == "trial" for line in new):
        raise InputError(f"{elsewhere} holds trials. Name the runs.jsonl beside it: its trials come along.")
    for started, lines in grouped(new, lambda line: line["started"]).items():
        title = f"{lines[-1]['settings']['file']}, seed {lines[-1]['seed']}"
        if standing_since(runs, lines[-1]) > started:
            print(f"{title}: left where it is, a later run stands in {runs}")
            continue
        replace_run(runs, trials, lines, why=why)
        print(f"{title}: taken over")
    tried = [line for line in read_lines(elsewhere.with_name("trials.jsonl")) if line["started"] not in known]
    append_lines(trials, tried)
    print(f"{len(tried)} lines of trials")


if __name__ == "__main__":
    sys.exit(main())
