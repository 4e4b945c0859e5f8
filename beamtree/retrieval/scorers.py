"""From a model's arrays to a scorer: in the kernels if they support all of its parts, else in torch."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import polars as pl

from beamtree import native
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.model.memory import Memory
from beamtree.scorer import Scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

if TYPE_CHECKING:
    from beamtree.model.part import MakePart, MakePartOnTree


@runtime_checkable
class ReplaceableMemory(Scorer, Protocol):
    """A scorer whose memory can be replaced without rebuilding it."""

    def with_memory(self, memory: Memory) -> Scorer:
        """The same score with this memory."""


KERNEL_PARTS = frozenset({"attention", "memory", "tower"})
"""The parts that beamtree knows by itself."""
TAKEN_COLUMNS = frozenset({"request", "user_id", "item_id", "score", "rank", "because_of", "reason_parts"})
"""Columns of a table of recommendations, beside which each part has one with its share."""


def build_scorer(
    weights: Mapping[str, AnyArray],
    tree: ItemTree,
    *,
    config: Config,
    parts: "Mapping[str, MakePartOnTree] | None" = None,
) -> Scorer:
    """The score that a model's arrays describe; they are named by part, as in `memory/popularity`.

    parts: how to make those parts that beamtree does not know, by name. InputError where one is missing, and where
    there are neither kernels nor torch to compute with.
    """
    arrays, makers = arrays_by_part(weights), dict(parts or {})
    unknown = [name for name in unknown_parts(weights) if name not in makers]
    if unknown:
        raise InputError(
            f"The score of this model has parts that beamtree does not know: {', '.join(unknown)}. Load it in Python "
            f"and give what makes them, as when it was fitted: bt.load(folder, parts={{{unknown[0]!r}: ...}})."
        )
    if native.is_available() and not makers:
        from beamtree.retrieval.native_scorer import NativeScorer

        memory = Memory.from_arrays(arrays["memory"]) if "memory" in arrays else None
        return NativeScorer(
            tree, attention=arrays.get("attention"), memory=memory, tower=arrays.get("tower"), config=config
        )
    try:
        from beamtree.model.torch_scorer import build_torch_scorer
    except ModuleNotFoundError as missing:
        raise InputError(
            f"The kernels were not compiled, and without them search needs the package {missing.name}. Install a C++ "
            "compiler and install beamtree again, or: pip install 'beamtree[train]'. `beamtree doctor` shows what is "
            "active."
        ) from missing
    return build_torch_scorer(weights, tree, config=config, parts=makers)


def bind_items(parts: "Mapping[str, MakePart] | None", item_table: pl.DataFrame) -> "dict[str, MakePartOnTree]":
    """Factories of the parts, bound to the item table (one row per dense item)."""

    def bound(make: "MakePart") -> "MakePartOnTree":
        return lambda tree, config, generator: make(tree, config, generator=generator, item_table=item_table)

    return {name: bound(make) for name, make in (parts or {}).items()}


def check_part_names(names: Iterable[str]) -> None:
    """InputError for names of custom parts that are already taken."""
    for name in names:
        if name in KERNEL_PARTS or name in TAKEN_COLUMNS or not name or "/" in name:
            raise InputError(
                f"A part of the score cannot be called {name!r}. Choose a name without a slash that is neither a part "
                f"of beamtree's own ({', '.join(sorted(KERNEL_PARTS))}; model.parts leaves them out) nor a column of "
                f"recommendations ({', '.join(sorted(TAKEN_COLUMNS))})."
            )


def unknown_parts(weights: Mapping[str, AnyArray]) -> list[str]:
    """The names of custom parts, which are searched in torch."""
    return sorted(arrays_by_part(weights).keys() - KERNEL_PARTS)


def arrays_by_part(weights: Mapping[str, AnyArray]) -> dict[str, dict[str, AnyArray]]:
    """Arrays named `part/name`, apart."""
    parts: dict[str, dict[str, AnyArray]] = {}
    for name, array in weights.items():
        part, _, own = name.partition("/")
        parts.setdefault(part, {})[own] = array
    return parts
