"""PLT (Jasinska-Kobus et al., 2020), a probabilistic label tree: the conditional probability of each child, multiplied.

Trained on each level with the positives' siblings as the only negatives, by binary cross-entropy. A node alone says how
likely it is given its parent, so a beam goes by the product of the sigmoids along the path.

Open in the comparison's paper: the network (DIN with a table of histories of its own, as for TDM) and the tree, which
starts from categories as all others do and is not updated. In the original, labels are clustered by their features, and
scores are linear.
"""

from collections.abc import Mapping

from beamtree.baselines.trees.labelled_nodes import SiblingNodes
from beamtree.baselines.trees.method import Method
from beamtree.baselines.trees.node_loss import NodewiseLoss
from beamtree.baselines.trees.node_scores import learner_of
from beamtree.baselines.trees.path_scorer import PathScorer
from beamtree.config import Config
from beamtree.retrieval.scorers import build_scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray


def make_method() -> Method:
    """How PLT learns and searches; its tree stays."""
    return Method(
        lambda score, config: learner_of(NodewiseLoss(SiblingNodes(score.tree)), score, config=config),
        make_scorer=_search_by_path,
    )


def _search_by_path(weights: Mapping[str, AnyArray], tree: ItemTree, config: Config) -> PathScorer:
    return PathScorer(build_scorer(weights, tree, config=config), tree)
