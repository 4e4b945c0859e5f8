"""JTR (Li et al., SIGIR 2023): a tree of buckets under a sequence encoder, both learned, and buckets that overlap.

The encoder is a trained SASRec, which is learned on. The tree has ten branches and buckets of at most 100 items, by
k-means on SASRec's items; a node's vector is initialised with its centre. Each level has a softmax over the target's
node and 50 others, siblings first. Then every item goes to the two buckets that the beams of its training histories
find most often, and learning goes on. A search ranks the items of the best buckets by inner products.

Open in the papers: how often the buckets change (twice), how wide a beam is (ten buckets, in training and search), and
how the ranking keeps up with an encoder that learns nodes: here the items of the target's bucket form one more level.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

if TYPE_CHECKING:
    from beamtree.baselines.trees.jtr_index import JtrIndex


@dataclass
class Jtr:
    """Joint optimisation of a tree of buckets and the encoder of queries.

    max_bucket: items of a bucket before they overlap. beam_width: buckets.
    """

    name: str = "jtr"
    recipe: Recipe = PUBLISHED
    branching: int = 10
    max_bucket: int = 100
    negatives: int = 50
    beam_width: int = 10

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> "JtrIndex":
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.encoder import train_encoder
        from beamtree.baselines.trees.jtr_learning import learn_jtr
        from beamtree.baselines.trees.run import TreeRun

        config = system_config(budget.config, dataset, recipe=self.recipe, history_table="separate")
        run = TreeRun(self.name, dataset, split, budget, config, self.recipe)
        return learn_jtr(
            run,
            train_encoder(run),
            branching=self.branching,
            max_bucket=self.max_bucket,
            negatives=self.negatives,
            beam_width=self.beam_width,
        )
