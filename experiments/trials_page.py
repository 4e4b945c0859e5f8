"""The page of trials: what was tried, on the validation users, best first, seeds of one trial in one row."""

from collections.abc import Sequence

from experiments.markdown import describe_asked, table
from experiments.paper import in_order
from experiments.results import BEFORE, Line, is_replaced
from experiments.summary import SYSTEM_NAMES, Spread, grouped, settings_of

INTRODUCTION = """\
# Trials

What was tried and by what settings were chosen, so that nobody has to try it again. Every row was measured on the
validation users by `python -m experiments.run experiments/settings/trials/TRIAL.toml` and stands in
[results/trials.jsonl](../results/trials.jsonl), with all settings and the commit; some files have changed since or are
gone. This page is made from these lines by `python -m experiments.report`; what they say is on the
[page of results](results.md), and so are the points of the sensitivity studies, which are not repeated here.

Best first. ± is the standard deviation over the seeds. With one seed, steps of a few per cent decide nothing."""


def render_trials(lines: Sequence[Line]) -> str:
    """The page as Markdown, from the latest final line of each trial and seed."""
    parts = [INTRODUCTION]
    alone = [line for line in lines if line["study"] is None]
    by_data = grouped(alone, lambda line: line["data"])
    for data in sorted(by_data, key=in_order):
        now, before = ([line for line in by_data[data] if is_replaced(line) is replaced] for replaced in (False, True))
        parts += [f"## {data}", describe_asked(by_data[data])]
        if now:
            parts.append(_table(now))
        if before:
            parts += ["Rows of the page of results that later ones have replaced:", _table(before)]
    if not alone:
        parts.append("Nothing has been tried yet.")
    return "\n\n".join(parts) + "\n"


def _table(lines: Sequence[Line]) -> str:
    trials = grouped(
        lines, lambda line: (line["settings"]["file"], line["system"], line["note"], str(settings_of(line)))
    )
    rows = []
    for own in sorted(trials.values(), key=lambda own: -Spread.of([line["metrics"]["f@20"] for line in own]).mean):
        unseen = [line["unseen"]["f@20"] for line in own if "unseen" in line]
        rows.append(
            [
                own[0]["settings"]["file"].removesuffix(".toml"),
                SYSTEM_NAMES[own[0]["system"]],
                str(len(own)),
                Spread.of([line["metrics"]["f@20"] for line in own]).text(),
                Spread.of(unseen).text() if unseen else "",
                f"{Spread.of([line['instances'] for line in own]).mean:,.0f}",
                f"{Spread.of([line['cpu_seconds'] for line in own]).mean:,.0f}",
                own[0]["note"].removeprefix(BEFORE).strip(),
            ]
        )
    header = ["trial", "system", "seeds", "F@20", "F@20 of unseen", "instances", "processor seconds", "what"]
    return table(header, rows)
