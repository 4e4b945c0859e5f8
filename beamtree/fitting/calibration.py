"""How much counted memory counts beside what was learned: a few weights, chosen by what validation users get."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from beamtree.config import MemorySettings
from beamtree.model.memory import MemoryWeights

MEMORY_ALONE = MemoryWeights(transitions=1.0, repeats=0.0, popularity=0.01, fade=0.7, company=0.5)
BESIDE_LEARNED = MemoryWeights(transitions=0.5, repeats=0.0, popularity=0.0, fade=0.7, company=0.5)
"""Where calibration starts, and where it stays without validation users."""

REPEATS = MemoryWeights(repeats=16.0, repeat_fade=1.0)
"""Whose repeats those start from where seen items may be recommended."""

FEWEST_USERS = 20
"""With fewer validation users the grid would choose by accident."""

CANDIDATES: Mapping[str, tuple[float, ...]] = {
    "transitions": (0.0, 0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0),
    "fade": (0.6, 0.7, 0.8, 0.9, 0.95),
    "company": (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0),
    "repeats": (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0),
    "repeat_fade": (0.97, 0.99, 0.997, 1.0),
    "popularity": (0.0, 0.01, 0.1, 0.3, 1.0),
}
"""What each weight may become, in the order in which they are chosen."""

Measure = Callable[[MemoryWeights], float]
"""The metric of a score with these weights on the validation users; higher is better."""


@dataclass(frozen=True)
class Calibrated:
    """The weights that won, their metric, and what was tried: (weights, metric) in order."""

    weights: MemoryWeights
    metric: float | None
    trials: tuple[tuple[MemoryWeights, float], ...]


def calibrate(
    measure: Measure | None, settings: MemorySettings, *, beside_learned: bool, repeats_can_return: bool
) -> Calibrated:
    """One weight after the other, each over a coarse grid, with the others where they are; ties go to the first tried.

    measure: None where there is nobody to validate on. settings: a weight that is set there is not calibrated.
    repeats_can_return: own repeats are evidence only where seen items may be recommended.
    """
    start = BESIDE_LEARNED if beside_learned else MEMORY_ALONE
    if repeats_can_return:
        start = replace(start, repeats=REPEATS.repeats, repeat_fade=REPEATS.repeat_fade)
    told = {name: getattr(settings, name) for name in CANDIDATES}
    weights = replace(start, **{name: value for name, value in told.items() if value is not None})
    free = [name for name, value in told.items() if value is None]
    if not beside_learned:  # memory alone ranks the same under any common factor
        free = [name for name in free if name != "transitions"]
    if not repeats_can_return:
        free = [name for name in free if name not in ("repeats", "repeat_fade")]
    if measure is None or not free:
        return Calibrated(weights, None, ())
    trials = [(weights, measure(weights))]
    best = trials[0]
    for name in free:
        for value in CANDIDATES[name]:
            if name == "popularity" and value == 0.0 and not beside_learned:
                continue  # items without any evidence would come back in the order of the leaves
            tried = replace(best[0], **{name: value})
            if tried not in [weights for weights, _ in trials]:
                trials.append((tried, measure(tried)))
                best = max(best, trials[-1], key=lambda trial: trial[1])
    return Calibrated(best[0], best[1], tuple(trials))
