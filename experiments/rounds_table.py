"""Where runs stand at the end of each round, and what each relearning of the tree did."""

from collections.abc import Mapping, Sequence

from experiments.markdown import table
from experiments.results import Line
from experiments.summary import Spread, grouped


def rounds_table(runs: Mapping[str, Sequence[Line]]) -> str:
    """A row for each name: validation F@20 of its lines by round, items moved, and what their places gained.

    The gain is that of the log-likelihood of the training targets' places, in per cent of it; below 0 it was lost.
    """
    numbers = sorted({line["round"] for lines in runs.values() for line in lines})
    rows = []
    for name, lines in runs.items():
        by_round = grouped(lines, lambda line: line["round"])
        relearned = [line for line in lines if "moved_share" in line]
        gained = [
            (line["score_after"] - line["score_before"]) / abs(line["score_before"])
            for line in relearned
            if "score_after" in line
        ]
        rows.append(
            [
                name,
                *(
                    Spread.of([line["metrics"]["f@20"] for line in by_round[number]]).text()
                    if number in by_round
                    else ""
                    for number in numbers
                ),
                f"{100 * Spread.of([line['moved_share'] for line in relearned]).mean:.0f} %" if relearned else "",
                f"{100 * Spread.of(gained).mean:+.0f} %" if gained else "",
            ]
        )
    header = ["validation F@20", *(f"round {number + 1}" for number in numbers)]
    return table([*header, "items moved per relearning", "log-likelihood gained by it"], rows)
