"""DTR as published but for one strategy: systems that a comparison fits beside the product's."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.dtr import DtrMethod, dtr_config, fit_dtr
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import InputError

if TYPE_CHECKING:
    from beamtree.training.labels import Labels
    from beamtree.training.strategies import Strategies


@dataclass
class AdaptiveDtr:
    """DTR(U) with more negatives on deeper levels; alpha = 0: as published."""

    name: str = "dtr-u-adaptive"
    alpha: float = 0.0
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from research.negatives import AdaptiveSampler

        def change(usual: "Strategies", count: int) -> "Strategies":
            return replace(usual, negatives=AdaptiveSampler(count, self.alpha))

        return _fit(self, "dtr-u", change, dataset, split, budget=budget)


@dataclass
class DrawnDtr:
    """DTR(T) with other draws down the tree; see `research.negatives.PathSampler`."""

    name: str = "dtr-t-drawn"
    start: Literal["level", "root", "every"] = "level"
    correction: Literal["negatives", "published"] = "negatives"
    mode: Literal["evaluation", "training"] = "evaluation"
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from research.negatives import PathSampler

        def change(usual: "Strategies", count: int) -> "Strategies":
            return replace(usual, negatives=PathSampler(count, self.start, self.correction, self.mode))

        return _fit(self, "dtr-t", change, dataset, split, budget=budget)


@dataclass
class LabelledDtr:
    """DTR(T-RL) with other labels: subtree, as in the product, child, normalised or soft; see `research.labels`."""

    name: str = "dtr-t-rl-labelled"
    labels: str = "subtree"
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`; InputError for unknown labels."""
        labels = labels_of(self.labels)
        return _fit(self, "dtr-t-rl", lambda usual, _: replace(usual, labels=labels), dataset, split, budget=budget)


@dataclass
class PlacedDtr:
    """DTR(T) with items placed otherwise; see `ASSIGNMENTS` and `ROWS` of `research.placement`."""

    name: str = "dtr-t-placed"
    assign: str = "residents"
    rows: str = "stay"
    stride: int | None = None
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`; InputError for an unknown placement."""
        from research.placement import ASSIGNMENTS, ROWS, placement_of

        if self.assign not in ASSIGNMENTS or self.rows not in ROWS:
            raise InputError(
                f"Expected one of {', '.join(ASSIGNMENTS)} with rows that {', '.join(ROWS)}, got {self.assign!r} with "
                f"{self.rows!r}."
            )
        placement = placement_of(self.assign, self.rows, stride=self.stride)
        return _fit(self, "dtr-t", lambda usual, _: replace(usual, placement=placement), dataset, split, budget=budget)


def labels_of(name: str) -> "Labels":
    """Labels by name; InputError for an unknown one."""
    from beamtree.training.labels import RectifiedLabels
    from research.labels import ChildLabels, NormalisedLabels, SoftLabels

    known: dict[str, Labels] = {
        "subtree": RectifiedLabels(),
        "child": ChildLabels(),
        "normalised": NormalisedLabels(),
        "soft": SoftLabels(),
    }
    if name not in known:
        raise InputError(f"Expected labels that are one of {', '.join(known)}, got {name!r}.")
    return known[name]


Variant = AdaptiveDtr | DrawnDtr | LabelledDtr | PlacedDtr


def _fit(
    variant: Variant,
    method: DtrMethod,
    change: "Callable[[Strategies, int], Strategies]",
    dataset: Dataset,
    split: Split,
    *,
    budget: Budget,
) -> BeamIndex:
    """Fit a method with strategies that are changed; change: also given the number of negatives."""
    from beamtree.baselines.trees.run import TreeRun
    from beamtree.training.strategies import Strategies

    config = dtr_config(budget.config, dataset, method=method, recipe=variant.recipe)
    strategies = change(Strategies.of(config), config.training.negatives)
    return fit_dtr(TreeRun(variant.name, dataset, split, budget, config, variant.recipe, strategies))
