"""The strategies of a training method: negative sampler, labels, placement.

This is the only place where settings choose among them; any object with the same protocol can replace one.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields

from beamtree.config import Config
from beamtree.training.labels import Labels, PlainLabels, RectifiedLabels
from beamtree.training.negatives import NegativeSampler, UniformSampler
from beamtree.training.placement import AUCTION, PUBLISHED, Placement
from beamtree.training.tree_negatives import TreeSampler


@dataclass(frozen=True)
class Method:
    """One of the paper's three methods. sampler: for a number of negatives per level."""

    sampler: Callable[[int], NegativeSampler]
    labels: Labels


METHODS = {
    "dtr-u": Method(UniformSampler, PlainLabels()),
    "dtr-t": Method(TreeSampler, PlainLabels()),
    "dtr-t-rl": Method(TreeSampler, RectifiedLabels()),
}
"""By the value of `training.method`."""

PLACEMENTS: dict[str, Placement] = {placement.name: placement for placement in (AUCTION, PUBLISHED)}
"""By the value of `tree.placement`."""


@dataclass(frozen=True)
class Strategies:
    """The strategies of a fit; `dataclasses.replace` changes one of them."""

    negatives: NegativeSampler
    labels: Labels
    placement: Placement

    @classmethod
    def of(cls, config: Config) -> "Strategies":
        """As `training.method`, `training.negatives` and `tree.placement` choose."""
        method = METHODS[config.training.method]
        return cls(method.sampler(config.training.negatives), method.labels, PLACEMENTS[config.tree.placement])

    def beside(self, config: Config) -> dict[str, str]:
        """The names of those that differ from the choice of the settings, for checkpoints and reports."""
        usual, names = Strategies.of(config), [field.name for field in fields(self)]
        own = {name: getattr(self, name).name for name in names}
        return {name: value for name, value in own.items() if value != getattr(usual, name).name}
