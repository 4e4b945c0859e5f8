"""Systems of experiments that the product does not have, by name."""

from functools import partial
from types import MappingProxyType

from beamtree.baselines.registry import Entry
from beamtree.compare.systems import System
from research.adaptive import AdaptiveDtr
from research.perturbation import PerturbedDtr

_learned = partial(
    Entry, not_simple=lambda _dataset, _config: "it is for research", libraries=("torch",), extra="train", learns=True
)
_ENTRIES = (
    _learned(AdaptiveDtr, "DTR(U) with more negatives on deeper levels"),
    _learned(PerturbedDtr, "DTR(T), and how its labels change under noise"),
)

SYSTEMS = MappingProxyType({entry.make().name: System(entry.make().name, "tree", entry) for entry in _ENTRIES})
"""All systems by name."""
