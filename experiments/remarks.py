"""What people read out of the lines, in results/remarks.md: its figures are looked up, never typed.

    {start}                                  validation F@20 of a settings file's runs: mean over the seeds, with spread
    {sensitivity-alpha dtr-u 0.8}            of one system, or of one point of a study
    {dtr-t-ml-1m round 1}                    at the end of a round
    {test dtr-t-ml-1m}, {unseen start}       on the test users; with the items of the history left out
    {seen start}                             the share of seen items in the lists
    {dtr-t-ml-1m | before: faithful run}     of runs with this note alone
    {test dtr-t-ml-1m / dtr-u-ml-1m}         a ratio, seed by seed

What is not among the lines, or among them with several settings, is a DataError: the page is not made with it.
"""

import re
from dataclasses import dataclass

from beamtree.errors import DataError
from experiments.results import Line, is_replaced
from experiments.summary import SYSTEM_NAMES, Runs, Spread, varying_settings

PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
NUMBER = re.compile(r"\d+(\.\d+)?")
KINDS = ("test", "unseen", "seen")


@dataclass(frozen=True)
class Reference:
    """Which runs a placeholder means."""

    file: str
    system: str | None
    value: float | None
    round_number: int | None
    note: str | None

    @classmethod
    def parse(cls, text: str) -> "Reference":
        """From the words of a placeholder; DataError for words that mean nothing."""
        words, _, note = text.partition("|")
        if not words.split():
            raise DataError(f"{{{text}}} in the remarks names no settings file.")
        file, *rest = words.split()
        system: str | None = None
        value: float | None = None
        round_number: int | None = None
        while rest:
            word = rest.pop(0)
            if word == "round" and rest and rest[0].isdigit():
                round_number = int(rest.pop(0)) - 1
            elif word in SYSTEM_NAMES:
                system = word
            elif NUMBER.fullmatch(word):
                value = float(word)
            else:
                raise DataError(f"{{{text.strip()}}} in the remarks: {word!r} is no system, value or round.")
        return cls(file, system, value, round_number, note.strip() or None)

    def means(self, line: Line) -> bool:
        """Whether a line is of one of these runs. Without a note, runs that later ones replaced are not meant."""
        point = None if line["study"] is None else line["study"]["value"]
        return (
            line["settings"]["file"] == f"{self.file}.toml"
            and self.system in (None, line["system"])
            and self.value in (None, point)
            and (not is_replaced(line) if self.note is None else line["note"] == self.note)
            and (self.round_number is None or self.round_number == line["round"])
        )


def fill_in(text: str, *, runs: Runs, trials: Runs) -> str:
    """The text with every placeholder replaced by what the lines have."""

    def look_up(found: re.Match[str]) -> str:
        words = found[1].split(maxsplit=1)
        kind = words[0] if len(words) > 1 and words[0] in KINDS else None
        sides = (found[1] if kind is None else words[1]).split(" / ")
        if len(sides) > 2:
            raise DataError(f"{found[0]} in the remarks has more than two sides.")
        by_seed = [_values(Reference.parse(side), kind, runs=runs, trials=trials, where=found[0]) for side in sides]
        if len(by_seed) == 1:
            spread = Spread.of(list(by_seed[0].values()))
            return f"{100 * spread.mean:.0f} %" if kind == "seen" else spread.text()
        shared = [seed for seed in by_seed[0] if seed in by_seed[1]]
        if not shared:
            raise DataError(f"{found[0]} in the remarks: no seed is among both.")
        return Spread.of([by_seed[0][seed] / by_seed[1][seed] for seed in shared]).text(3)

    return PLACEHOLDER.sub(look_up, text)


def _values(reference: Reference, kind: str | None, *, runs: Runs, trials: Runs, where: str) -> dict[int, float]:
    """The value of each seed."""
    if reference.round_number is not None:
        lines = [*runs.rounds, *trials.rounds]
    else:
        lines = runs.final if kind == "test" else [*runs.validation, *trials.validation]
    meant = sorted((line for line in lines if reference.means(line)), key=lambda line: line["seed"])
    if not meant or (kind == "test" and reference.round_number is not None):
        raise DataError(f"{where} in the remarks is not among the lines.")
    runs_meant = {(line["system"], str(line["study"])) for line in meant}
    if len(runs_meant) > 1 or varying_settings(meant) or len({line["seed"] for line in meant}) < len(meant):
        raise DataError(f"{where} in the remarks could be several: name its system, value or note.")
    try:
        return {line["seed"]: _value(line, kind) for line in meant}
    except KeyError as error:
        raise DataError(f"{where} in the remarks was not measured: a line has no {error}.") from error


def _value(line: Line, kind: str | None) -> float:
    if kind == "seen":
        return float(line["seen@20"])
    return float(line["unseen" if kind == "unseen" else "metrics"]["f@20"])
