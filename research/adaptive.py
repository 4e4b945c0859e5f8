"""DTR(U) with more negatives on deeper levels (the paper's appendix on adaptive sampling).

Level l gets negatives in proportion to 1 + alpha * l, and the whole tree as many as with the same number on each level.
Draws down the tree have no number of their own on each level, so that this is for uniform negatives alone.
"""

from dataclasses import dataclass

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.dtr import dtr_config, fit_dtr
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split


@dataclass
class AdaptiveDtr:
    """DTR(U) as published but for alpha; 0 = as published."""

    name: str = "dtr-u-adaptive"
    alpha: float = 0.0
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.run import TreeRun

        config = dtr_config(budget.config, dataset, method="dtr-u", recipe=self.recipe)
        training = config.training.model_copy(update={"depth_slope": self.alpha})
        config = config.model_copy(update={"training": training})
        return fit_dtr(TreeRun(self.name, dataset, split, budget, config, self.recipe))
