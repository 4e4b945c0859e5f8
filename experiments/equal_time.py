"""The methods again, with equal time instead of equal instances.

A method that costs more per instance, or an estimator first, is compared with the others when these may spend the same
processor seconds on instances: trials of the study `time`, which differ from each other by their number alone, and the
faithful runs. Those of a small network and those of the published one are compared among themselves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

from experiments.comparison import verdict
from experiments.figures import Figures, time_figure
from experiments.markdown import describe_asked, table
from experiments.paper import CLAIMS, Claim
from experiments.results import Line
from experiments.summary import ORDER, SYSTEM_NAMES, Spread, grouped, ratios, settings_of

STUDY = "time"
TOLERANCE = 0.1
"""Times are called equal when the longer one is so much longer at most, as a share of it."""


@dataclass(frozen=True)
class Group:
    """The runs of a system, one per seed, that saw as many instances."""

    system: str
    lines: list[Line]

    @property
    def seconds(self) -> float:
        """Processor seconds of a run, on average."""
        return Spread.of([line["cpu_seconds"] for line in self.lines]).mean

    def is_as_long_as(self, other: "Group") -> bool:
        """Whether the runs of both took the same time, within the tolerance."""
        shorter, longer = sorted((self.seconds, other.seconds))
        return shorter >= (1 - TOLERANCE) * longer


@dataclass(frozen=True, order=True)
class Sizes:
    """What a step costs."""

    history: int
    negatives: int

    @classmethod
    def of(cls, line: Line) -> "Sizes":
        """Those of a run."""
        config = line["settings"]["config"]
        return cls(sum(config["model"]["windows"]), config["training"]["negatives"])

    def __str__(self) -> str:
        return f"histories of {self.history}, {self.negatives} negatives"


def equal_time_sections(faithful: Iterable[Line], longer: list[Line], *, data: str, figures: Figures) -> list[str]:
    """Figure, runs and claims for each size of network; nothing where no run was given another's time.

    faithful: final lines on the validation users; longer: those of the study.
    """
    if not longer:
        return []
    known = sorted(
        (line for line in (*faithful, *longer) if line["system"].startswith("dtr")),
        key=lambda line: (ORDER.index(line["system"]), line["instances"]),
    )
    by_size = grouped(known, Sizes.of)
    parts: list[str] = []
    for sizes in sorted(by_size, reverse=True):
        parts += _section(by_size[sizes], sizes, data=data, figures=figures)
    return parts


def _section(known: list[Line], sizes: Sizes, *, data: str, figures: Figures) -> list[str]:
    groups = [Group(own[0]["system"], own) for own in grouped(known, _what_was_run).values()]
    name = f"time-{data}-{sizes.history}-{sizes.negatives}.svg"
    curves: dict[str, dict[float, Spread]] = {group.system: {} for group in groups}
    for group in groups:
        curves[group.system][group.seconds] = Spread.of([line["metrics"]["f@20"] for line in group.lines])
    figures[name] = time_figure(curves, title=f"Equal time on {data}: {sizes}")
    return [
        f"#### Equal time on {data}, {sizes}",
        "What each method reaches for the processor seconds it is given, the estimator's among them. "
        f"{describe_asked(known)}",
        f"![Validation F@20 over processor seconds on {data}](figures/{name})",
        _runs_table(groups),
        *_claims(groups),
    ]


def _what_was_run(line: Line) -> tuple[str, int, str]:
    """System, length and settings."""
    return line["system"], line["instances"], str(settings_of(line))


def _runs_table(groups: list[Group]) -> str:
    rows = []
    for group in groups:
        unseen = [line["unseen"]["f@20"] for line in group.lines if "unseen" in line]
        rows.append(
            [
                SYSTEM_NAMES[group.system],
                str(len(group.lines)),
                f"{group.lines[0]['instances']:,}",
                f"{group.seconds:,.0f}",
                Spread.of([line["metrics"]["f@20"] for line in group.lines]).text(),
                Spread.of(unseen).text() if unseen else "",
            ]
        )
    header = ["system", "seeds", "instances", "processor seconds", "validation F@20", "F@20 of unseen"]
    return table(header, rows)


def _claims(groups: list[Group]) -> list[str]:
    """One row for each claim and each two groups that decide it; nothing where no two do."""
    rows = [
        [
            claim.text,
            f"{SYSTEM_NAMES[claim.better]} / {SYSTEM_NAMES[claim.worse]}",
            f"{better.seconds:,.0f} and {worse.seconds:,.0f}",
            Spread.of(found).text(3),
            verdict(found),
        ]
        for claim in CLAIMS
        for better, worse, found in _deciding(claim, groups)
    ]
    if not rows:
        return []
    header = ["claim", "F@20 ratio", "processor seconds", "here", "does it hold here?"]
    return [
        f"Times within {100 * TOLERANCE:.0f} % of each other count as equal. Who is ahead with each seed in less time "
        "is ahead at equal time too.",
        table(header, rows),
    ]


def _deciding(claim: Claim, groups: list[Group]) -> list[tuple[Group, Group, list[float]]]:
    """The pairs that took the same time; where there are none, one in which the shorter is ahead, with most seeds."""
    pairs = [
        (better, worse, found)
        for better, worse in product(groups, groups)
        if (better.system, worse.system) == (claim.better, claim.worse)
        if (found := ratios(better.lines, worse.lines, metric="f@20"))
    ]
    equal = [pair for pair in pairs if pair[0].is_as_long_as(pair[1])]
    if equal:
        return equal
    settled = [
        (better, worse, found)
        for better, worse, found in pairs
        if all(ratio > 1 if better.seconds < worse.seconds else ratio < 1 for ratio in found)
    ]
    return sorted(settled, key=lambda pair: (-len(pair[2]), abs(pair[0].seconds - pair[1].seconds)))[:1]
