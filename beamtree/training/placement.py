"""Assignment of the items to the leaves of a new tree, and initial node embeddings: by auction, or as published."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from beamtree.training.instances import TrainingInstances
from beamtree.training.relearn import AddScores, Relearned, ScoreCandidates, relearn_tree
from beamtree.tree.assign import Assign, assign_residents_first
from beamtree.tree.auction import assign_by_auction
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

TransferRows = Callable[[AnyArray, ItemTree, ItemTree], AnyArray]
"""From a table with a row for each node, the old tree and the new one of the same shape, to the table to go on with."""


class Placement(Protocol):
    """How items are reassigned between rounds, the same in every round of a fit."""

    @property
    def name(self) -> str:
        """What checkpoints call it, options included: one with another name is not resumed."""

    def place(
        self,
        tree: ItemTree,
        instances: TrainingInstances,
        *,
        add_scores: AddScores,
        instances_per_item: int | None = None,
        score: ScoreCandidates | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> Relearned:
        """A new tree of the same shape; the arguments are those of `relearn_tree`."""

    @property
    def transfer(self) -> TransferRows:
        """The initial embeddings in the new tree."""


@dataclass(frozen=True)
class StagedPlacement:
    """Items go down the tree in stages, each by the scores of its own instances, within the nodes' capacities.

    assign: gives every item of a group one node. stride: levels per stage; None takes the most that keep the
    candidates at 128 or fewer.
    """

    name: str
    assign: Assign
    transfer: TransferRows
    stride: int | None = None

    def place(
        self,
        tree: ItemTree,
        instances: TrainingInstances,
        *,
        add_scores: AddScores,
        instances_per_item: int | None = None,
        score: ScoreCandidates | None = None,
        on_step: Callable[[], None] = lambda: None,
    ) -> Relearned:
        """As in `Placement`."""
        return relearn_tree(
            tree,
            instances,
            add_scores=add_scores,
            stride=self.stride,
            instances_per_item=instances_per_item,
            assign=self.assign,
            score=score,
            on_step=on_step,
        )


def move_leaf_rows(node_table: AnyArray, old: ItemTree, new: ItemTree) -> AnyArray:
    """The table with the row of each item's old leaf at its new leaf; rows of inner nodes and vacant leaves stay."""
    first = old.level_offsets[old.height]
    moved = node_table.copy()
    moved[first + new.leaf_of_item] = node_table[first + old.leaf_of_item]
    return moved


def keep_rows(node_table: AnyArray, old: ItemTree, new: ItemTree) -> AnyArray:
    """The table unchanged: embeddings stay with their nodes."""
    del old, new
    return node_table


AUCTION = StagedPlacement("auction", assign_by_auction, move_leaf_rows)
"""A near-optimal sum of scores; a leaf embedding moves with its item."""

PUBLISHED = StagedPlacement("published", assign_residents_first, keep_rows)
"""As in the published code: an item that stays takes precedence over new ones; embeddings stay with their leaf."""
