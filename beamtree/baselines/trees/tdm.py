"""TDM (Zhu et al., KDD 2018): node-wise binary cross-entropy, uniform negatives, and a reclustered tree.

Positives are the target's leaf and its ancestors, negatives are drawn uniformly from each level without replacement,
and histories are items with vectors of their own. Between rounds, four updates as in the comparison's paper, the items
are clustered by the vectors of their leaves.

Open in the papers, or different in public code: six negatives on each level (the paper has 3 to 6, depending on the
data; public code has more on deeper levels); the model goes on after clustering, each leaf's vector with its item and
each inner node at the mean of the leaves below (public code starts anew); windows are sums, not means; the vectors of
histories are a table beside that of the leaves.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

if TYPE_CHECKING:
    from beamtree.baselines.trees.method import Replanting
    from beamtree.tree.item_tree import ItemTree

NEGATIVES = 6
UPDATES = 4


@dataclass
class Tdm:
    """The tree-based deep model."""

    name: str = "tdm"
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.labelled_nodes import UniformNodes
        from beamtree.baselines.trees.learning import index_of, learn
        from beamtree.baselines.trees.method import Method
        from beamtree.baselines.trees.node_loss import NodewiseLoss
        from beamtree.baselines.trees.node_scores import learner_of
        from beamtree.baselines.trees.rebuilt_rows import rebuild_rows
        from beamtree.baselines.trees.run import TreeRun

        config = system_config(budget.config, dataset, recipe=self.recipe, history_table="separate")
        run = TreeRun(self.name, dataset, split, budget, config, self.recipe)
        method = Method(
            lambda score, config: learner_of(
                NodewiseLoss(UniformNodes(score.tree, negatives=NEGATIVES)), score, config=config
            ),
            replant=cluster_leaves,
            max_rounds=UPDATES + 1,
            transfer=rebuild_rows,
        )
        return index_of(run, learn(run, method), make_scorer=method.make_scorer)


def cluster_leaves(replanting: "Replanting") -> "ItemTree":
    """The tree that clusters the items by the vectors of their leaves, recursively and balanced."""
    from beamtree.training.randomness import numpy_generator
    from beamtree.tree.build import clustering_order, plant

    tree, rounds = replanting.rounds.tree, replanting.rounds
    vectors = rounds.weights["attention/node_table"][tree.level_offsets[tree.height] + tree.leaf_of_item]
    generator = numpy_generator(replanting.run.budget.seed, "leaves", rounds.round)
    order = clustering_order(vectors, branching=tree.branching, generator=generator, on_step=replanting.on_step)
    return plant(order, branching=tree.branching)
