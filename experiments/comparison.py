"""The systems side by side: a table for each role, what it says about the paper's claims, and the rounds."""

from beamtree.config import Config
from experiments.decisive import decisive_settings
from experiments.figures import Figures, rounds_figure
from experiments.markdown import compact, describe_asked, table
from experiments.paper import CLAIMS, in_order
from experiments.results import Line
from experiments.rounds_table import rounds_table
from experiments.summary import (
    ORDER,
    SYSTEM_NAMES,
    Spread,
    grouped,
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
COMPARED = ("tree", "model", "training", "estimator")
HOUSEKEEPING = {
    "training.epochs",
    "training.patience",
    "training.validations",
    "training.validation_users",
    "estimator.seed",
}
METHOD = {"training.most_instances", "training.rectification", "training.soft_items", "training.soft_share"}
"""What methods may differ in and still be compared: instances are told apart anyway, and labels are their own."""
WAYS = ("beam", "scan")
ROLES = {
    "faithful": "Method and protocol of the paper, with fewer instances than published.",
    "best": "As good as we can make it, with settings that were chosen on the validation users.",
}
LEVEL = 0.01
"""Means so close to 1 are called level, whatever the single seeds say."""


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
    lines: list[Line], validation: list[Line], rounds: list[Line], *, data: str, role: str, figures: Figures
) -> list[str]:
    """The tables of a role, what they say about the paper's claims, and its rounds.

    lines: on the test users; validation: the same runs on the validation users.
    """
    parts = [f"### {data}, {role}", f"{ROLES[role]} {describe_asked(lines)}", _quality_table(lines)]
    parts += ["What that took, and what the same model finds when it looks at every item:", _cost_table(lines)]
    trees = [line for line in lines if line["system"].startswith("dtr")]
    parts += _differences(lines, trees)
    if role == "faithful":
        parts += _departures(trees)
    claims = _claims(lines, validation, data=data)
    if claims:
        parts.append(claims)
    several = [line for line in rounds if line["settings"]["config"]["training"]["rounds"] > 1]
    if several:
        name = f"rounds-{data}-{role}.svg"
        figures[name] = rounds_figure(several, title=f"Learning the tree on {data} ({role})")
        parts += [f"![Validation F@20 over rounds on {data}](figures/{name})", _rounds_table(several), _growth(several)]
    return parts


def _quality_table(lines: list[Line]) -> str:
    rows = []
    for system, own in grouped(lines, lambda line: line["system"]).items():
        unseen = [line["unseen"]["f@20"] for line in own if "unseen" in line]
        seen = [line["seen@20"] for line in own if "seen@20" in line]
        rows.append(
            [
                SYSTEM_NAMES[system],
                str(len(own)),
                *(Spread.of([line["metrics"][metric] for line in own]).text() for metric in METRICS),
                Spread.of(unseen).text() if unseen else "",
                f"{100 * Spread.of(seen).mean:.0f} %" if seen else "",
            ]
        )
    return table(["system", "seeds", *METRICS.values(), "F@20 of unseen", "seen in the 20"], rows)


def _cost_table(lines: list[Line]) -> str:
    header = ["system", "instances", "seconds", "processor seconds", "seconds for estimator and labels"]
    header += ["for labels, the estimator found kept", "F@20 by beam", "by exact scan", "users"]
    rows = []
    for system, own in grouped(lines, lambda line: line["system"]).items():
        seconds = Spread.of([line["seconds"] for line in own]).mean
        estimator = [line["seconds_estimator"] for line in own if line.get("seconds_estimator")]
        training = [line["stages"]["estimator_seconds"] for line in own if line.get("seconds_estimator")]
        exact = [line["exact"] for line in own if line.get("exact") is not None]
        rows.append(
            [
                SYSTEM_NAMES[system],
                f"{Spread.of([line['instances'] for line in own]).mean:,.0f}",
                f"{seconds:,.0f}",
                f"{Spread.of([line['cpu_seconds'] for line in own]).mean:,.0f}",
                _part(Spread.of(estimator).mean, of=seconds) if estimator else "",
                _without(Spread.of(training).mean, Spread.of(estimator).mean, of=seconds) if training else "",
                *(Spread.of([found[way]["f@20"] for found in exact]).text() if exact else "" for way in WAYS),
                f"{exact[0]['users']:,}" if exact else "",
            ]
        )
    return table(header, rows)


def _differences(lines: list[Line], trees: list[Line]) -> list[str]:
    """Sentences on settings that are not the same within a row, or between the trees."""
    found = []
    for system, own in grouped(lines, lambda line: line["system"]).items():
        if varying := varying_settings(own):
            found.append(f"The seeds of {SYSTEM_NAMES[system]} differ in {_quoted(varying)}.")
    if varying := varying_settings(trees):
        found.append(f"Settings that differ between the DTR rows: {_quoted(varying)}.")
    return found


def _quoted(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _departures(trees: list[Line]) -> list[str]:
    """Where the settings of the trees are not those of the paper: what all share, then what some have besides."""
    who: dict[str, dict[str, None]] = {}
    for line in trees:
        here = settings_of(line)
        for name, value in PUBLISHED.items():
            section = name.partition(".")[0]
            if section in COMPARED and name not in HOUSEKEEPING and name in here and here[name] != value:
                departure = f"`{name}` {compact(here[name])} ({compact(value)})"
                who.setdefault(departure, {})[SYSTEM_NAMES[line["system"]]] = None
    together: dict[tuple[str, ...], list[str]] = {}
    for departure, systems in who.items():
        together.setdefault(tuple(systems), []).append(departure)
    sentences = [
        f"{', '.join(systems)}: {', '.join(together[systems])}." for systems in sorted(together, key=len, reverse=True)
    ]
    return [f"Settings that are not the paper's, in brackets. {' '.join(sentences)}"] if sentences else []


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
    if abs(mean - 1) < LEVEL:
        answer = f"Level within {100 * LEVEL:.0f} %: above with {above} of {len(found)} seeds"
    elif len(found) == 1:
        answer = "Yes with the one seed measured" if above else "No with the one seed measured"
    elif above == len(found):
        answer = f"Yes, with each of {len(found)} seeds"
    elif above == 0:
        answer = f"No, with none of {len(found)} seeds"
    else:
        answer = f"Undecided: with {above} of {len(found)} seeds, and {'above' if mean > 1 else 'not above'} on average"
    return f"{answer}."


def _inequality(better: list[Line], worse: list[Line]) -> str:
    """A remark where the two did not see as many instances, within a hundredth, or differ in what both have."""
    first, second = (Spread.of([line["instances"] for line in own]).mean for own in (better, worse))
    remarks = []
    if abs(first - second) > 0.01 * max(first, second):
        remarks.append(f" Not at equal instances: {first:,.0f} against {second:,.0f}.")
    varying = [name for name in varying_settings([*better, *worse]) if name not in METHOD]
    if varying:
        remarks.append(f" Not with the same {_quoted(varying)}.")
    return "".join(remarks)


def _rounds_table(rounds: list[Line]) -> str:
    by_system = grouped(rounds, lambda line: line["system"])
    return rounds_table({SYSTEM_NAMES[system]: by_system[system] for system in ORDER if system in by_system})


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
