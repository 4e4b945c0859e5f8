"""Take over lines that were measured elsewhere: on another machine, or in another checkout.

    python -m experiments.adopt ELSEWHERE/runs.jsonl --why "items placed in the order of their scores"

ELSEWHERE/trials.jsonl comes along if it is there. A run that stands in results/ already is replaced, and what it had
measured on the validation users goes to the trials; --why says what sets it apart from the new one.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.results import append_lines, read_lines, replace_run
from experiments.summary import grouped

ROOT = Path(__file__).resolve().parents[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Take over all runs of a file, in their order."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="lines that experiments.run wrote with --out")
    parser.add_argument("--why", required=True, help="what sets the replaced runs apart, for their note")
    parser.add_argument("--results", type=Path, default=ROOT / "results", help="folder of the measured lines")
    given = parser.parse_args(arguments)
    runs, trials = given.results / "runs.jsonl", given.results / "trials.jsonl"
    known = {line["started"] for line in (*read_lines(runs), *read_lines(trials))}
    for started, lines in grouped(read_lines(given.runs), lambda line: line["started"]).items():
        if started not in known:
            replaced = replace_run(runs, trials, lines, why=given.why)
            print(f"{lines[-1]['settings']['file']}, seed {lines[-1]['seed']}: took over, {replaced} lines retired")
    new = [line for line in read_lines(given.runs.with_name("trials.jsonl")) if line["started"] not in known]
    append_lines(trials, new)
    print(f"{len(new)} lines of trials")


if __name__ == "__main__":
    main()
