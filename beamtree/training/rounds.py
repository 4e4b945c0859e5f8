"""The state between rounds of training the model and relearning the tree, and how it is saved."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from beamtree.training.checkpoint import (
    Arrays,
    Checkpoint,
    Identity,
    copied,
    forget_checkpoint,
    load_checkpoint,
    save_checkpoint,
)
from beamtree.training.placement import TransferRows
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

KIND = "rounds"


@dataclass
class Rounds:
    """The tree and weights that the next round starts from, and the best round so far."""

    round: int
    tree: ItemTree
    weights: Arrays
    best_round: int
    best_tree: ItemTree
    best_weights: Arrays
    best_score: float | None = None
    reports: list[dict[str, Any]] = field(default_factory=list)
    planting_seconds: float = 0.0

    @classmethod
    def first(cls, tree: ItemTree, weights: Mapping[str, AnyArray]) -> "Rounds":
        """Before anything is learned."""
        start = copied(weights)
        return cls(0, tree, start, best_round=0, best_tree=tree, best_weights=start)

    def finish(self, weights: Mapping[str, AnyArray], report: dict[str, Any], *, score: float | None) -> None:
        """Store the weights of a round. Without a validation score, the latest round counts as the best."""
        self.weights = copied(weights)
        self.reports.append(report)
        if score is None or self.best_score is None or score > self.best_score:
            self.best_round, self.best_tree, self.best_weights = self.round, self.tree, self.weights
            self.best_score = score
        self.round += 1

    def replant(self, tree: ItemTree, *, transfer: TransferRows, node_tables: Iterable[str]) -> None:
        """Continue with a new tree of the same shape; node_tables: the weights with a row for each node."""
        moved = {name: transfer(self.weights[name], self.tree, tree) for name in node_tables}
        self.weights = {**self.weights, **moved}
        self.tree = tree


def round_seed(seed: int, round_number: int) -> int:
    """A different seed for each round; the first is that of the run."""
    return (seed + round_number * 0x9E3779B1) % 2**32


def save_rounds(directory: Path, rounds: Rounds, *, identity: Identity) -> None:
    """Keep the state between two rounds."""
    progress = {
        "branching": rounds.tree.branching,
        "round": rounds.round,
        "best_round": rounds.best_round,
        "best_score": rounds.best_score,
        "reports": rounds.reports,
        "planting_seconds": rounds.planting_seconds,
    }
    arrays = {
        "tree": {"item_at_leaf": rounds.tree.item_at_leaf},
        "weights": rounds.weights,
        "best_tree": {"item_at_leaf": rounds.best_tree.item_at_leaf},
        "best_weights": rounds.best_weights,
    }
    save_checkpoint(directory, Checkpoint(progress, arrays), kind=KIND, identity=identity)


def load_rounds(directory: Path, *, identity: Identity) -> Rounds | None:
    """The state that `save_rounds` kept, or None where there is none yet."""
    kept = load_checkpoint(directory, kind=KIND, identity=identity)
    if kept is None:
        return None
    progress = dict(kept.progress)
    branching = progress.pop("branching")
    return Rounds(
        tree=ItemTree(branching, kept.group("tree")["item_at_leaf"]),
        weights=kept.group("weights"),
        best_tree=ItemTree(branching, kept.group("best_tree")["item_at_leaf"]),
        best_weights=kept.group("best_weights"),
        **progress,
    )


def forget_rounds(work_directory: Path) -> None:
    """Delete the rounds of an earlier run from this folder, so that a fit starts from the beginning."""
    for directory in (work_directory / "rounds", *work_directory.glob("round-*")):
        forget_checkpoint(directory)
