"""From a model's arrays to a scorer: in the kernels where they were compiled, else in torch."""

from collections.abc import Mapping

from beamtree import native
from beamtree.config import ModelSettings
from beamtree.errors import InputError
from beamtree.model.memory import Memory
from beamtree.scorer import Scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

KERNEL_PARTS = frozenset({"attention", "memory"})


def build_scorer(weights: Mapping[str, AnyArray], tree: ItemTree, *, settings: ModelSettings) -> Scorer:
    """The score that a model's arrays describe; they are named by part, as in `memory/fades`."""
    parts = arrays_by_part(weights)
    unknown = sorted(parts.keys() - KERNEL_PARTS)
    if unknown:
        raise InputError(f"The model has parts that this beamtree does not know: {', '.join(unknown)}.")
    if not native.is_available():
        raise InputError("The kernels were not compiled.")
    from beamtree.retrieval.native_scorer import NativeScorer

    memory = None if "memory" not in parts else Memory.from_arrays(parts["memory"])
    return NativeScorer(tree, attention=parts.get("attention"), memory=memory, settings=settings)


def arrays_by_part(weights: Mapping[str, AnyArray]) -> dict[str, dict[str, AnyArray]]:
    """Arrays named `part/name`, apart."""
    parts: dict[str, dict[str, AnyArray]] = {}
    for name, array in weights.items():
        part, _, own = name.partition("/")
        parts.setdefault(part, {})[own] = array
    return parts
