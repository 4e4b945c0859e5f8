"""DTR(U), DTR(T) and DTR(T-RL) as published: a softmax on each level, with 70 negatives.

U draws them uniformly from the level; T draws them top-down through the tree by the model; T-RL also rectifies the
labels: a target is positive on those levels where the estimator finds no better item below its ancestor. The tree is
relearned between rounds, twelve at most, by the items' log-likelihood; items that stay take precedence.

Open in the paper: where top-down draws start (the softmax of the first level that is not taken whole), the test for
rectified labels (the target wins its whole subtree), and how well the estimator is trained. Here it is the comparison's
own SASRec, with the settings of the section `estimator`, so that the labels are no better than the system they are
compared with; the paper's has width 24 and four layers.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

if TYPE_CHECKING:
    from beamtree.baselines.trees.method import Replanting
    from beamtree.baselines.trees.run import TreeRun
    from beamtree.training.rounds import Rounds
    from beamtree.tree.item_tree import ItemTree

ROUNDS = 12
DtrMethod = Literal["dtr-u", "dtr-t", "dtr-t-rl"]


@dataclass
class Dtr:
    """One of the three variants, named after its method."""

    method: DtrMethod
    recipe: Recipe = PUBLISHED
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = self.method

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.run import TreeRun

        config = dtr_config(budget.config, dataset, method=self.method, recipe=self.recipe)
        return fit_dtr(TreeRun(self.name, dataset, split, budget, config, self.recipe))


def dtr_config(base: Config, dataset: Dataset, *, method: DtrMethod, recipe: Recipe) -> Config:
    """The settings of a variant, with the comparison's protocol, seed, estimator and retrieval."""
    config = system_config(base, dataset, recipe=recipe, history_table="shared")
    return config.model_copy(update={"training": config.training.model_copy(update={"method": method})})


def fit_dtr(run: "TreeRun") -> BeamIndex:
    """The variant that the run's strategies make, learned to the end of its budget."""
    from beamtree.baselines.trees.learning import index_of
    from beamtree.baselines.trees.method import search_by_the_score

    return index_of(run, learn_dtr(run), make_scorer=search_by_the_score)


def learn_dtr(run: "TreeRun") -> "Rounds":
    """The same before it is searched: all rounds."""
    from beamtree.baselines.trees.encoder import train_encoder
    from beamtree.baselines.trees.learning import learn
    from beamtree.baselines.trees.method import Method
    from beamtree.fitting.computation import build_candidate_scores, build_learner
    from beamtree.training.instances import TrainingInstances
    from beamtree.training.trainer import Instances

    strategies = run.strategies
    placement = strategies.placement
    estimator = train_encoder(run) if strategies.labels.needs_estimator else None

    def label(instances: TrainingInstances, tree: "ItemTree") -> Instances:
        return strategies.labels.label(instances, tree=tree, estimator=estimator)

    def relearn(replanting: "Replanting") -> "ItemTree":
        return placement.place(
            replanting.rounds.tree,
            replanting.run.instances,
            add_scores=build_candidate_scores(replanting.score),
            instances_per_item=replanting.instances_per_item,
            on_step=replanting.on_step,
        ).tree

    method = Method(
        lambda score, config: build_learner(score, config=config, negatives=strategies.negatives),
        label=label,
        replant=relearn,
        max_rounds=ROUNDS,
        transfer=placement.transfer,
    )
    return learn(run, method)
