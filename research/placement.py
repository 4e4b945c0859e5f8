"""Other placements: greedy ones, by regret or by score, and inner embeddings rebuilt from the leaves below."""

from functools import partial

from beamtree.baselines.trees.tdm import rebuild_rows
from beamtree.training.placement import AUCTION, PUBLISHED, StagedPlacement, keep_rows, move_leaf_rows
from beamtree.tree.assign import Assign, assign_balanced
from beamtree.types import Float64Array

ROWS = {"travel": move_leaf_rows, "rebuild": rebuild_rows, "stay": keep_rows}
"""What embeddings start from in a new tree: a leaf's goes with its item; so it does, and inner nodes start from the
mean of the leaves below; all stay where they are, as published."""


def by_score(best: Float64Array, _second: Float64Array) -> Float64Array:
    """The higher an item's score for the node, the earlier it is placed."""
    return best


ASSIGNMENTS: dict[str, Assign] = {
    "auction": AUCTION.assign,
    "residents": PUBLISHED.assign,
    "regret": assign_balanced,
    "score": partial(assign_balanced, priority=by_score),
}
"""Who gets a node that too many prefer: near-optimal by auction; who stood there, as published; who would lose most
elsewhere; who scores highest."""


def placement_of(assign: str, rows: str, *, stride: int | None = None) -> StagedPlacement:
    """A placement by the names of its two choices; KeyError for others."""
    stages = "" if stride is None else f", stride {stride}"
    return StagedPlacement(f"{assign}, rows {rows}{stages}", ASSIGNMENTS[assign], ROWS[rows], stride=stride)
