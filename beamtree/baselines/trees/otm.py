"""OTM (Zhuo et al., ICML 2020): JTM's tree, trained on the nodes that the beam search meets, with corrected labels.

For each instance, with the present weights: pseudo-targets from the leaves up, and then a beam search whose candidates
on each level, the children of the best 150 above, all contribute to a binary cross-entropy. Levels that a beam
keeps whole are neither searched nor trained. See `beam_loss` for the labels.

Open in the papers: half of the budget is JTM's, whose tree and weights it starts from, because the beam of random
weights finds noise; labels and beams carry no gradient; positives off the beam are not learned from, and nothing is
drawn at random. The original is trained to predict all of the second half of each user's items from the first half, as
in the test; here it has the same targets as all other systems.
"""

from dataclasses import dataclass, replace

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

JTM_SHARE = 0.5


@dataclass
class Otm:
    """Optimal tree models under beam search. beam_width: in training; two candidates for each, 300 as published."""

    name: str = "otm"
    recipe: Recipe = PUBLISHED
    beam_width: int = 150

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.beam_loss import BeamLoss
        from beamtree.baselines.trees.jtm import make_method
        from beamtree.baselines.trees.learning import index_of, learn
        from beamtree.baselines.trees.method import Method
        from beamtree.baselines.trees.node_scores import learner_of
        from beamtree.baselines.trees.run import TreeRun, part_of
        from beamtree.training.rounds import Rounds

        config = system_config(budget.config, dataset, recipe=self.recipe, history_table="shared")
        before = part_of(budget, JTM_SHARE)
        jtm = learn(TreeRun(f"{self.name}-start", dataset, split, before, config, self.recipe), make_method())
        rest = replace(part_of(budget, 1.0 - JTM_SHARE), seconds=budget.seconds)
        run = TreeRun(self.name, dataset, split, rest, config, self.recipe)
        method = Method(
            lambda score, config: learner_of(BeamLoss(score.tree, beam_width=self.beam_width), score, config=config)
        )
        rounds = learn(run, method, start=Rounds.first(jtm.best_tree, jtm.best_weights))
        return index_of(run, rounds, make_scorer=method.make_scorer)
