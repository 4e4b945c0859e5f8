"""PLT (Jasinska-Kobus et al., 2020), a probabilistic label tree: the conditional probability of each child, multiplied.

Trained on each level with the positives' siblings as the only negatives, by binary cross-entropy. A node alone says how
likely it is given its parent, so a beam goes by the product of the sigmoids along the path.

Open in the comparison's paper: the network (DIN with a table of histories of its own, as for TDM) and the tree, which
starts from categories as all others do and is not updated. In the original, labels are clustered by their features, and
scores are linear.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

if TYPE_CHECKING:
    from beamtree.scorer import Scorer


@dataclass
class Plt:
    """A probabilistic label tree over DIN."""

    name: str = "plt"
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.labelled_nodes import SiblingNodes
        from beamtree.baselines.trees.learning import index_of, learn
        from beamtree.baselines.trees.method import Method
        from beamtree.baselines.trees.node_loss import NodewiseLoss
        from beamtree.baselines.trees.node_scores import learner_of
        from beamtree.baselines.trees.run import TreeRun

        config = system_config(budget.config, dataset, recipe=self.recipe, history_table="separate")
        run = TreeRun(self.name, dataset, split, budget, config, self.recipe)
        method = Method(
            lambda score, config: learner_of(NodewiseLoss(SiblingNodes(score.tree)), score, config=config),
            make_scorer=_search_by_path,
        )
        return index_of(run, learn(run, method), make_scorer=method.make_scorer)


def _search_by_path(weights: Mapping[str, AnyArray], tree: ItemTree, config: Config) -> "Scorer":
    from beamtree.baselines.trees.path_scorer import PathScorer
    from beamtree.retrieval.scorers import build_scorer

    return PathScorer(build_scorer(weights, tree, config=config), tree)
