"""What each part counts in the score: a few weights, chosen by what validation users would get.

Neither the encoder nor the counts may choose them on users they have seen: own pairs would speak for themselves.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from beamtree.model.memory import MemoryWeights

LEARNED = "learned"
TOWER = "tower"
"""Names of evidence: what is learned in rounds, attention for example, which counts 1, and the tower."""
TREND = "trend"
"""What `model.weights` has where the trend is left out."""

MEMORY_ALONE = MemoryWeights(transitions=1.0, repeats=0.0, popularity=0.01, fade=0.7, company=0.5)
BESIDE_LEARNED = MemoryWeights(transitions=0.5, repeats=0.0, popularity=0.0, fade=0.7, company=0.5)
"""Where calibration starts, and where it stays without validation users."""

REPEATS = 16.0
"""What own repeats count before calibration where seen items may be recommended; as much against them where people of
this log do not repeat."""

FEWEST_USERS = 20
"""With fewer validation users the grid would choose by accident."""

ALL_COUNTS = "all counts"
FACTORS = (0.25, 0.35, 0.5, 0.7, 1.4, 2.0, 2.8, 4.0)
"""Beside something learned, the weights of all that is counted are also multiplied together."""

STEPS = (0.0, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 8.0)
"""Weights that are tried, in units in which all kinds of evidence spread alike between the candidates of a user."""

FADES = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
REPEAT_FADES = (0.97, 0.99, 0.997, 1.0)

PASSES = 3
"""Each weight is tried at most so often, with the others where they are by then."""


@dataclass(frozen=True)
class PartWeights:
    """What the parts count beside whatever is learned in rounds, which counts 1."""

    tower: float = 1.0
    memory: MemoryWeights = MEMORY_ALONE


@dataclass(frozen=True)
class Calibrated:
    """The weights that won, and how many were tried."""

    weights: PartWeights
    trials: int


Measure = Callable[[PartWeights], float]
"""How good a score with these weights is for the validation users; higher is better."""


@dataclass(frozen=True)
class Choice:
    """What there is to choose, and what was chosen by a person.

    has_learned, has_tower, has_memory: the summands. repeats_can_return: own repeats are evidence only where seen items
    may be recommended; people_repeat: for themselves rather than against, to begin with. fixed: weights by name that
    are not calibrated, as in `model.weights`.
    """

    has_learned: bool
    has_tower: bool
    has_memory: bool
    repeats_can_return: bool
    people_repeat: bool
    fixed: Mapping[str, float]

    def start(self) -> PartWeights:
        """Where calibration begins."""
        usual = BESIDE_LEARNED if self.has_learned or self.has_tower else MEMORY_ALONE
        repeats = (REPEATS if self.people_repeat else -REPEATS) if self.repeats_can_return else 0.0
        usual = replace(usual, repeats=repeats, repeat_fade=REPEAT_FADES[-1])
        memory = replace(usual, **{name: self.fixed[name] for name in MEMORY_NAMES if name in self.fixed})
        return PartWeights(self.fixed.get(TOWER, 1.0), memory)

    def free(self) -> Iterator[str]:
        """The weights to calibrate, in the order in which they are tried; one kind of evidence counts 1 for good."""
        if self.has_tower and self.has_learned and TOWER not in self.fixed:
            yield TOWER
        if not self.has_memory:
            return
        names = [name for name in MEMORY_NAMES if name not in self.fixed]
        if not (self.has_learned or self.has_tower):
            names = [name for name in names if name != "transitions"]
        elif len(names) == len(MEMORY_NAMES):
            yield ALL_COUNTS
        if not self.repeats_can_return:
            names = [name for name in names if not name.startswith("repeat")]
        yield from names


COUNTS = ("transitions", "company", "repeats", "popularity")
MEMORY_NAMES = ("transitions", "fade", "company", "repeats", "repeat_fade", "popularity")


def calibrate(measure: Measure | None, choice: Choice, *, units: Mapping[str, float]) -> Calibrated:
    """One weight after the other over a grid, the others where they are, until none moves; ties go to the first tried.

    measure: None where there is nobody to validate on, which leaves the usual weights. units: by the name of a weight,
    in which its grid is; a weight without one stays where it is.
    """
    weights, trials = choice.start(), 0
    free = list(choice.free())
    if measure is None:
        return Calibrated(weights, trials)
    best, trials = measure(weights), 1
    for _ in range(PASSES):
        before = weights
        for name in free:
            origin = weights
            for value in _grid(name, choice, units):
                tried = _changed(origin, name, value)
                if tried != weights:
                    found, trials = measure(tried), trials + 1
                    if found > best:
                        weights, best = tried, found
        if weights == before:
            break
    return Calibrated(weights, trials)


def evidence_weights(weights: PartWeights, choice: Choice) -> dict[str, float]:
    """What each kind of evidence, by name, counts under some weights of the parts."""
    named: dict[str, float] = {}
    if choice.has_learned:
        named[LEARNED] = 1.0
    if choice.has_tower:
        named[TOWER] = weights.tower
    if choice.has_memory:
        memory = weights.memory
        named[transitions_evidence(memory.fade)] = memory.transitions
        named["company"] = memory.company
        named["popularity"] = memory.popularity
        if choice.repeats_can_return:
            named[repeats_evidence(memory.repeat_fade)] = memory.repeats
    return named


def transitions_evidence(fade: float) -> str:
    """The name of what followed the history, by how it fades."""
    return f"transitions {fade:g}"


def repeats_evidence(fade: float) -> str:
    """The name of a person's own repeats, by how they fade."""
    return f"repeats {fade:g}"


def tried_fades(fixed: Mapping[str, float]) -> tuple[float, ...]:
    """How transitions may fade: as it was fixed, or any that is tried."""
    return (fixed["fade"],) if "fade" in fixed else FADES


def tried_repeat_fades(fixed: Mapping[str, float]) -> tuple[float, ...]:
    """How own repeats may fade: as it was fixed, or any that is tried."""
    return (fixed["repeat_fade"],) if "repeat_fade" in fixed else REPEAT_FADES


def grid_units(choice: Choice, spread: Callable[[str], float]) -> dict[str, float]:
    """In what units the grid of each weight is: so that all kinds of evidence spread as the one that counts 1 does.

    spread: of a kind of evidence, by name. A kind that says the same of everything has none.
    """
    start = evidence_weights(choice.start(), choice)
    kinds = {name.split()[0]: name for name in start}
    standard = next(kinds[name] for name in (LEARNED, TOWER, "transitions") if name in kinds)
    spreads = {name: spread(kind) for name, kind in kinds.items()}
    return {name: spread(standard) / found for name, found in spreads.items() if found > 0.0}


def _grid(name: str, choice: Choice, units: Mapping[str, float]) -> tuple[float, ...]:
    if name == ALL_COUNTS:
        return FACTORS
    if name == "fade":
        return FADES
    if name == "repeat_fade":
        return REPEAT_FADES
    if name not in units:
        return ()
    grid = tuple(float(f"{step * units[name]:.3g}") for step in STEPS)
    if name == "repeats":
        return (*(-value for value in reversed(grid[1:])), *grid)
    if name == "popularity" and not (choice.has_learned or choice.has_tower):
        return grid[1:]  # items without any evidence would come back in the order of the leaves
    return grid


def _changed(weights: PartWeights, name: str, value: float) -> PartWeights:
    if name == TOWER:
        return replace(weights, tower=value)
    if name == ALL_COUNTS:
        memory = weights.memory
        counts = {kind: float(f"{value * getattr(memory, kind):.3g}") for kind in COUNTS}
        return replace(weights, memory=replace(memory, **counts))
    return replace(weights, memory=replace(weights.memory, **{name: value}))
