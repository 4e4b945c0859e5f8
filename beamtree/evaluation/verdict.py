"""The verdict of an evaluation: the model is ahead of the best baseline, level with it, or behind."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from beamtree.config import MAX_EPOCHS, Config
from beamtree.evaluation.intervals import Interval, difference, relative_difference
from beamtree.evaluation.metrics import Metrics

USUAL_CUTOFF = 20
SEED = 0
"""Of the bootstrap: the same table gives the same line."""

MIN_USERS = 6
"""Of fewer users the bootstrap says nothing: all of five being ahead happens by chance once in sixteen times."""

Standing = Literal["ahead", "level", "behind", "unknown"]


@dataclass(frozen=True)
class Verdict:
    """A model against the baseline that is best in a metric.

    metric: its name, such as f@20. interval: the difference relative to the baseline's metric, or absolute if that is
    0 (see is_relative), with its 95 % interval over users. kind: "simple baseline" where
    none of them learns.
    """

    standing: Standing
    metric: str
    baseline: str
    kind: str
    interval: Interval
    is_relative: bool
    num_users: int
    advice: str

    def line(self) -> str:
        """The verdict as one sentence."""
        other = f"the best {self.kind} ({self.baseline}) in {self.metric.upper()}"
        size, low, high = self.interval
        if self.is_relative:
            amount, bounds = f"{100 * abs(size):.1f} %", f"{100 * low:+.1f} to {100 * high:+.1f} %"
        else:
            amount, bounds = f"{abs(size):.4f}", f"{low:+.4f} to {high:+.4f}"
        bounds = f"[95 % interval {bounds} over {self.num_users:,} users]"
        match self.standing:
            case "ahead":
                return f"Ahead of {other} by {amount} {bounds}."
            case "level":
                return f"Level with {other}: the interval holds zero {bounds}."
            case "behind":
                return f"Behind {other} by {amount} {bounds}: {self.advice}."
            case "unknown":
                return (
                    f"Not comparable with {other}: {self.num_users} users are too few, hold out at least {MIN_USERS}."
                )


def verdict_metric(cutoffs: Sequence[int]) -> str:
    """The metric of the verdict: F at the usual cutoff if it is among these, else at the first of them."""
    return f"f@{USUAL_CUTOFF if USUAL_CUTOFF in cutoffs else cutoffs[0]}"


def judge(
    model: Metrics,
    baselines: Mapping[str, Metrics],
    *,
    learning: Collection[str],
    config: Config,
    metric: str = f"f@{USUAL_CUTOFF}",
) -> Verdict:
    """The model against the baseline that is best in a metric, the first one among equals; one baseline or more.

    learning: names of the trained ones.
    """
    best = max(baselines, key=lambda name: baselines[name][metric])
    values, others = model.per_user[metric], baselines[best].per_user[metric]
    is_relative = baselines[best][metric] > 0.0
    interval = (relative_difference if is_relative else difference)(values, others, seed=SEED)
    return Verdict(
        standing=_standing(interval, num_users=model.num_users),
        metric=metric,
        baseline=best,
        kind="baseline" if any(name in learning for name in baselines) else "simple baseline",
        interval=interval,
        is_relative=is_relative,
        num_users=model.num_users,
        advice=advice(config),
    )


def _standing(interval: Interval, *, num_users: int) -> Standing:
    if num_users < MIN_USERS:
        return "unknown"
    if interval.holds_zero:
        return "level"
    return "ahead" if interval.estimate > 0.0 else "behind"


def advice(config: Config) -> str:
    """What to try with `beamtree fit` when a model with these settings is behind."""
    if config.model.parts == ("memory",):
        return "try --preset small, which learns besides counting"
    longer = [f"training.epochs={min(4 * config.training.epochs, MAX_EPOCHS):g}"]
    if config.training.max_instances is not None:
        longer.append(f"training.max_instances={4 * config.training.max_instances}")
    settings = " ".join(f"--set {setting}" for setting in longer)
    return f"try training longer ({settings}), or --preset instant, which only counts and takes seconds"
