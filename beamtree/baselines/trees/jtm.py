"""JTM (Zhu et al., NeurIPS 2019): TDM's loss, histories that climb the tree, and a tree learned by the same likelihood.

When a node of a level is scored, the items of the history are read as their ancestors on that level. Between rounds,
twelve at most, items are reassigned down the tree seven levels at a time, each to the node whose path its training
histories score highest; overfull nodes, the fullest first, keep the items that they had before.

Open in the papers, or different among public codes: a placement is weighed by the sum of ln p over an item's training
histories and the levels of the path (others sum p, or the logits); a node's capacity is its number of leaves; six
negatives on each level, as for TDM; vectors stay with their nodes when items move; the number of histories that are
read per item depends on the budget.
"""

import numpy as np
import torch
from torch.nn.functional import logsigmoid

from beamtree.baselines.trees.method import Method, Replanting
from beamtree.baselines.trees.node_scores import NodeScores
from beamtree.baselines.trees.tdm import make_learner
from beamtree.model.score import Score
from beamtree.training.instances import Batch
from beamtree.training.relearn import AddScores, Stage, relearn_tree
from beamtree.training.worker_threads import one_torch_thread
from beamtree.tree.assign import assign_residents_first
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float64Array, Int64Array

ROUNDS = 12


def make_method() -> Method:
    """How JTM learns and replants."""
    return Method(make_learner, replant=relearn_by_path, max_rounds=ROUNDS)


def relearn_by_path(replanting: Replanting) -> ItemTree:
    """The tree learned by the binary log-likelihood of the paths, residents first."""
    return relearn_tree(
        replanting.rounds.tree,
        replanting.run.instances,
        add_scores=path_scores(replanting.score),
        instances_per_item=replanting.instances_per_item,
        assign=assign_residents_first,
        on_step=replanting.on_step,
    ).tree


INSTANCES_AT_A_TIME = 128


def path_scores(score: Score) -> AddScores:
    """Log-likelihood of the paths to candidate nodes under the items' training histories.

    Adds, for each candidate of a stage, the sum of ln p over the levels from below the item's group to it.
    """
    tree = score.tree

    @one_torch_thread()
    @torch.no_grad()
    def add_scores(sums: Float64Array, batch: Batch, node_of_item: Int64Array, stage: Stage) -> None:
        targets = batch.targets[:, 0]
        groups = node_of_item[targets]
        for begin in range(0, len(targets), INSTANCES_AT_A_TIME):
            rows = slice(begin, begin + INSTANCES_AT_A_TIME)
            score_nodes = NodeScores(score, batch.requests.take(rows), dropout=None)
            found = np.zeros((len(targets[rows]), sums.shape[1]))
            for level in range(stage.upper + 1, stage.lower + 1):
                nodes, place = nodes_below(tree, groups[rows], stage=stage, level=level, columns=sums.shape[1])
                numbered = np.where(nodes != NOTHING, nodes + tree.level_offsets[level], NOTHING)
                scores = score_nodes([level], torch.from_numpy(numbered)[None])[0]
                log_yes = logsigmoid(scores.double()).numpy()
                on_path = np.take_along_axis(log_yes, np.maximum(place, 0), axis=1)
                found += np.where(place != NOTHING, on_path, 0.0)
            np.add.at(sums, targets[rows], found)

    return add_scores


def nodes_below(
    tree: ItemTree, groups: Int64Array, *, stage: Stage, level: int, columns: int
) -> tuple[Int64Array, Int64Array]:
    """The nodes of a level below each group, (groups, nodes), and which of them each candidate stands below.

    groups: nodes of the stage's upper level. The second, (groups, columns), has for each of the group's candidates, in
    rising order, a column of the first; both have -1 where there is none.
    """
    first_leaf, end_leaf = tree.leaf_ranges(groups, stage.upper)
    first, end = tree.ancestors(first_leaf, level), tree.ancestors(end_leaf - 1, level) + 1
    nodes = first[:, None] + np.arange(int((end - first).max()))
    nodes = np.where(nodes < end[:, None], nodes, NOTHING)
    first_candidate = tree.ancestors(first_leaf, stage.lower)
    end_candidate = tree.ancestors(end_leaf - 1, stage.lower) + 1
    candidates = first_candidate[:, None] + np.arange(columns)
    exists = candidates < end_candidate[:, None]
    leaf_below, _ = tree.leaf_ranges(np.where(exists, candidates, 0), stage.lower)
    return nodes, np.where(exists, tree.ancestors(leaf_below, level) - first[:, None], NOTHING)
