"""JTM (Zhu et al., NeurIPS 2019): TDM's loss, histories that climb the tree, and a tree learned by the same likelihood.

When a node of a level is scored, the items of the history are read as their ancestors on that level. Between rounds,
twelve at most, items go down the tree seven levels at a time, each to the node whose path its training histories say
yes to; crowded nodes, the fullest first, keep those who stood there before.

Open in the papers, or different among public codes: a placement is weighed by the sum of ln p over an item's training
histories and the levels of the path (others sum p, or the logits); a node's capacity is its number of leaves; six
negatives on each level, as for TDM; vectors stay with their nodes when items move; at most so many histories of each
item are read as the budget allows.
"""

from beamtree.baselines.trees.method import Method, Replanting
from beamtree.baselines.trees.path_likelihood import path_scores
from beamtree.baselines.trees.tdm import make_learner
from beamtree.training.relearn import relearn_tree
from beamtree.tree.assign import assign_residents_first
from beamtree.tree.item_tree import ItemTree

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
