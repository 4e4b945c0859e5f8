"""The systems side by side: a table for each role, what it says about the paper's claims, and the rounds."""

from pathlib import Path

from beamtree.config import Config
from experiments.decisive import decisive_settings
from experiments.figures import rounds_figure
from experiments.markdown import compact, describe_asked, table
from experiments.paper import CLAIMS, in_order
from experiments.results import Line
from experiments.summary import (
    ORDER,
    SYSTEM_NAMES,
    Spread,
    grouped,
    lost_share,
    ratios,
    settings_of,
    varying_settings,
)

METRICS = {
    "f@20": "F@20",
    "recall@20": "recall@20",
    "precision@20": "precision@20",
    "ndcg@20": "NDCG@20",
    "f@40": "F@40",
}
PUBLISHED = decisive_settings(Config.preset("paper").model_dump(mode="json"), system="dtr-t-rl")
HOUSEKEEPING = {
    "training.epochs",
    "training.patience",
    "training.validations",
    "training.validation_users",
    "training.checkpoint_minutes",
    "estimator.seed",
}
ROLES = {
    "faithful": "method and protocol of the paper; one network and one number of instances for all methods, fewer than "
    "published",
    "best": "as good as we can make it: each row has the settings that won on the validation users",
}


def glance(lines: list[Line]) -> list[str]:
    """F@20 of every system on every data set and in every role, in one table; nothing without lines."""
    if not lines:
        return []
    systems = [system for system in ORDER if any(line["system"] == system for line in lines)]
    rows = []
    for (data, role), own in sorted(
        grouped(lines, lambda line: (line["data"], line["role"])).items(),
        key=lambda entry: (in_order(entry[0][0]), list(ROLES).index(entry[0][1])),
    ):
        by_system = grouped(own, lambda line: line["system"])
        found = {
            system: Spread.of([line["metrics"]["f@20"] for line in by_system[system]]).text() for system in by_system
        }
        rows.append([f"{data}, {role}", *(found.get(system, "") for system in systems)])
    return ["## At a glance", "F@20 on the test users.", table(["", *(SYSTEM_NAMES[name] for name in systems)], rows)]


def role_section(
    lines: list[Line], validation: list[Line], rounds: list[Line], *, data: str, role: str, figures: Path
) -> list[str]:
    """The table of a role, what it says about the paper's claims, and its rounds.

    lines: on the test users; validation: the same runs on the validation users.
    """
    parts = [f"### {data}, {role}", f"{ROLES[role].capitalize()}. {describe_asked(lines)}", _main_table(lines)]
    trees = [line for line in lines if line["system"].startswith("dtr")]
    varying = varying_settings(trees)
    if varying:
        parts.append(f"Settings that differ between the DTR rows: {', '.join(f'`{name}`' for name in varying)}.")
    if role == "faithful" and trees:
        parts.append(_departures(trees[-1]))
    claims = _claims(lines, validation, data=data)
    if claims:
        parts.append(claims)
    several = [line for line in rounds if line["settings"]["config"]["training"]["rounds"] > 1]
    if several:
        name = f"rounds-{data}-{role}.svg"
        rounds_figure(figures / name, several, title=f"Learning the tree on {data} ({role})")
        parts += [f"![Validation F@20 over rounds on {data}](figures/{name})", _rounds_table(several), _growth(several)]
    return parts


def _main_table(lines: list[Line]) -> str:
    header = ["system", "seeds", *METRICS.values(), "F@20 of unseen", "seen in the 20"]
    header += ["lost to beam (below 0: gained)", "instances", "seconds", "of these estimator and labels"]
    header += ["labels, had the estimator been kept", "processor seconds"]
    rows = []
    for system, own in grouped(lines, lambda line: line["system"]).items():
        unseen = [line["unseen"]["f@20"] for line in own if "unseen" in line]
        seen = [line["seen@20"] for line in own if "seen@20" in line]
        lost = [share for share in map(lost_share, own) if share is not None]
        seconds = Spread.of([line["seconds"] for line in own]).mean
        estimator = [line["seconds_estimator"] for line in own if line.get("seconds_estimator")]
        training = [line["stages"]["estimator_seconds"] for line in own if line.get("seconds_estimator")]
        processor = [line["cpu_seconds"] for line in own if line.get("cpu_seconds") is not None]
        rows.append(
            [
                SYSTEM_NAMES[system],
                str(len(own)),
                *(Spread.of([line["metrics"][metric] for line in own]).text() for metric in METRICS),
                Spread.of(unseen).text() if unseen else "",
                f"{100 * Spread.of(seen).mean:.0f} %" if seen else "",
                f"{100 * Spread.of(lost).mean:.1f} %" if lost else "",
                f"{Spread.of([line['instances'] for line in own]).mean:,.0f}",
                f"{seconds:,.0f}",
                _part(Spread.of(estimator).mean, of=seconds) if estimator else "",
                _without(Spread.of(training).mean, Spread.of(estimator).mean, of=seconds) if training else "",
                f"{Spread.of(processor).mean:,.0f}" if processor else "",
            ]
        )
    return table(header, rows)


def _departures(line: Line) -> str:
    """Where the settings of a tree are not those of the paper; of the last method, so that its estimator's count."""
    here = settings_of(line)
    found = [
        f"`{name}` {compact(here[name])} ({compact(value)})"
        for name, value in PUBLISHED.items()
        if name.startswith(("tree.", "model.", "training.", "estimator."))
        and name not in HOUSEKEEPING
        and here.get(name, value) != value
    ]
    return f"Settings of {SYSTEM_NAMES[line['system']]} that are not the paper's, in brackets: {', '.join(found)}."


def _part(seconds: float, *, of: float) -> str:
    return f"{seconds:,.0f} ({100 * seconds / of:.0f} %)"


def _without(training: float, estimator: float, *, of: float) -> str:
    """What is left of the estimator's part, its labels, when its training is saved."""
    return _part(estimator - training, of=of - training)


def _claims(lines: list[Line], validation: list[Line], *, data: str) -> str:
    by_system, validated = (grouped(own, lambda line: line["system"]) for own in (lines, validation))
    rows = []
    for claim in CLAIMS:
        better, worse = by_system.get(claim.better, []), by_system.get(claim.worse, [])
        found = ratios(better, worse, metric="f@20")
        if found:
            unseen = ratios(better, worse, metric="f@20", part="unseen")
            others = ratios(validated.get(claim.better, []), validated.get(claim.worse, []), metric="f@20")
            paper = claim.ratio(data)
            rows.append(
                [
                    claim.text,
                    f"{SYSTEM_NAMES[claim.better]} / {SYSTEM_NAMES[claim.worse]}",
                    Spread.of(found).text(3),
                    Spread.of(unseen).text(3) if unseen else "",
                    Spread.of(others).text(3) if others else "",
                    "" if paper is None else f"{paper:.3f}",
                    f"{verdict(found)}{_inequality(better, worse)}",
                ]
            )
    header = ["claim", "F@20 ratio", "here", "of unseen", "validation users", "paper", "does it hold here?"]
    return table(header, rows) if rows else ""


def verdict(found: list[float]) -> str:
    """A plain sentence on a claim, given its ratio for each seed."""
    mean = Spread.of(found).mean
    above = sum(ratio > 1 for ratio in found)
    if len(found) == 1:
        answer = "Yes with the one seed measured" if above else "No with the one seed measured"
    elif above == len(found):
        answer = f"Yes, with each of {len(found)} seeds"
    elif above == 0:
        answer = f"No, with none of {len(found)} seeds"
    else:
        answer = f"Undecided: with {above} of {len(found)} seeds, and {'above' if mean > 1 else 'not above'} on average"
    return f"{answer}."


def _inequality(better: list[Line], worse: list[Line]) -> str:
    """A remark where the two did not see as many instances, within a hundredth."""
    first, second = (Spread.of([line["instances"] for line in own]).mean for own in (better, worse))
    if abs(first - second) <= 0.01 * max(first, second):
        return ""
    return f" Not at equal instances: {first:,.0f} against {second:,.0f}."


def _rounds_table(rounds: list[Line]) -> str:
    numbers = sorted({line["round"] for line in rounds})
    rows = []
    for system in ORDER:
        own = grouped([line for line in rounds if line["system"] == system], lambda line: line["round"])
        if own:
            spreads = {number: Spread.of([line["metrics"]["f@20"] for line in own[number]]) for number in sorted(own)}
            moved = [line["moved_share"] for line in rounds if line["system"] == system and "moved_share" in line]
            share = f"{100 * Spread.of(moved).mean:.0f} %" if moved else ""
            values = [spreads[number].text() if number in spreads else "" for number in numbers]
            rows.append([SYSTEM_NAMES[system], *values, share])
    header = ["validation F@20", *(f"round {number + 1}" for number in numbers), "items moved per relearning"]
    return table(header, rows)


def _growth(rounds: list[Line]) -> str:
    """A sentence on how far the rounds raise each system."""
    found = []
    for system in ORDER:
        own = grouped([line for line in rounds if line["system"] == system], lambda line: line["round"])
        if len(own) > 1:
            first, last = (
                Spread.of([line["metrics"]["f@20"] for line in own[number]]).mean for number in (min(own), max(own))
            )
            found.append(f"{SYSTEM_NAMES[system]} {100 * (last / first - 1):+.1f} %")
    return (
        f"From the first round to the last: {', '.join(found)}. Each round also trains the model further. "
        "The paper: F@20 rises with the updates of the tree, then converges."
    )
