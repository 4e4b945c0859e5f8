"""Systems of experiments that the product does not have, by name."""

from functools import partial
from types import MappingProxyType

from beamtree.baselines.registry import Entry
from beamtree.compare.systems import System
from research.bounded import BoundedDtr
from research.perturbation import PerturbedDtr
from research.variants import AdaptiveDtr, DrawnDtr, LabelledDtr, PlacedDtr

_learned = partial(Entry, libraries=("torch",), extra="train", learns=True)
_ENTRIES = (
    _learned(AdaptiveDtr, "DTR(U) with more negatives on deeper levels"),
    _learned(DrawnDtr, "DTR(T) with another start, correction or mode of the draws down the tree"),
    _learned(LabelledDtr, "DTR(T-RL) with child, normalised or soft labels"),
    _learned(PlacedDtr, "DTR(T) with another placement of the items, or other embeddings in a new tree"),
    _learned(PerturbedDtr, "DTR(T), and how its labels change under noise"),
    _learned(BoundedDtr, "DTR(T-RL), and the terms of its generalisation bound"),
)

SYSTEMS = MappingProxyType({entry.make().name: System(entry.make().name, "tree", entry) for entry in _ENTRIES})
"""All systems by name."""
