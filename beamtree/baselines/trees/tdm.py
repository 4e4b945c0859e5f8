"""TDM (Zhu et al., KDD 2018): node-wise binary cross-entropy, uniform negatives, and a reclustered tree.

Positives are the target's leaf and its ancestors, negatives are drawn uniformly from each level without replacement,
and histories are items with vectors of their own. Between rounds, four updates as in the comparison's paper, the items
are clustered by the vectors of their leaves.

Open in the papers, or different in public code: six negatives on each level (the paper has 3 to 6, depending on the
data; public code has more on deeper levels); the model goes on after clustering, each leaf's vector with its item and
each inner node at the mean of the leaves below (public code reinitialises); windows are sums, not means; the vectors of
histories are a table beside that of the leaves.
"""

from beamtree.baselines.trees.method import Method, Replanting
from beamtree.baselines.trees.node_loss import NodewiseLoss, UniformNodes
from beamtree.baselines.trees.node_scores import learner_of
from beamtree.config import Config
from beamtree.model.embedding_init import node_means
from beamtree.model.score import Score
from beamtree.training.learner import Learner
from beamtree.training.placement import move_leaf_rows
from beamtree.training.randomness import numpy_generator
from beamtree.tree.build import clustering_order, plant
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

NEGATIVES = 6
UPDATES = 4


def make_method() -> Method:
    """How TDM learns and reclusters."""
    return Method(make_learner, replant=cluster_leaves, max_rounds=UPDATES + 1, transfer=rebuild_rows)


def make_learner(score: Score, config: Config) -> Learner:
    """Binary cross-entropy on the targets' ancestors and nodes that are drawn uniformly."""
    return learner_of(NodewiseLoss(UniformNodes(score.tree, negatives=NEGATIVES)), score, config=config)


def cluster_leaves(replanting: Replanting) -> ItemTree:
    """The tree that clusters the items by the vectors of their leaves, recursively and balanced."""
    tree, rounds = replanting.rounds.tree, replanting.rounds
    vectors = rounds.weights["attention/node_table"][tree.level_offsets[tree.height] + tree.leaf_of_item]
    generator = numpy_generator(replanting.run.budget.seed, "leaves", rounds.round)
    order = clustering_order(vectors, branching=tree.branching, generator=generator, on_step=replanting.on_step)
    return plant(order, branching=tree.branching)


def rebuild_rows(node_table: AnyArray, old: ItemTree, new: ItemTree) -> AnyArray:
    """The table with each item's row at its new leaf, and at each inner node the mean of the items' rows below it."""
    first = new.level_offsets[new.height]
    rebuilt = move_leaf_rows(node_table, old, new)
    rebuilt[:first] = node_means(new, rebuilt[first + new.leaf_of_item])[:first]
    return rebuilt
