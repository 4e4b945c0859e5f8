"""DTR(T-RL), and the terms of the generalisation bound of the score that it learned."""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.dtr import dtr_config, learn_dtr
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe
from beamtree.data.dataset import Dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import Split
from beamtree.retrieval.engine import Engine, scores_of

if TYPE_CHECKING:
    from beamtree.baselines.trees.run import TreeRun
    from beamtree.model.estimator import Estimator
    from beamtree.training.rounds import Rounds
    from research.bound import BoundTerms

TRAINING_INSTANCES = 200
"""Training instances whose loss stands for the empirical loss of the bound."""

ASSUMED_ERROR = 1e-4
"""The error of the estimator's probabilities that the bound's second term is computed for; the true one is unknown."""

HELD_OUT_USERS = 100


@dataclass
class BoundedDtr:
    """DTR(T-RL) as published; beside its answers, the terms of the bound."""

    name: str = "dtr-t-rl-bounded"
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.encoder import train_encoder
        from beamtree.baselines.trees.learning import index_of
        from beamtree.baselines.trees.method import search_by_the_score
        from beamtree.baselines.trees.run import TreeRun

        config = dtr_config(budget.config, dataset, method="dtr-t-rl", recipe=self.recipe)
        run = TreeRun(self.name, dataset, split, budget, config, self.recipe)
        rounds = learn_dtr(run)
        index = index_of(run, rounds, make_scorer=search_by_the_score)
        terms = measure_bound(run, rounds, index.engine, estimator=train_encoder(run))
        return replace(index, findings=asdict(terms))


def measure_bound(run: "TreeRun", rounds: "Rounds", engine: Engine, *, estimator: "Estimator") -> "BoundTerms":
    """All terms for the best of some rounds, with constants measured on held-out users and training instances."""
    from beamtree.diagnostics.held_out import sample_held_out
    from beamtree.diagnostics.label_changes import measure_label_changes, rectified_labels, softmax
    from beamtree.diagnostics.levels import LevelPlan, measure_levels
    from beamtree.model.estimator import scores_of as item_scores_of
    from research.bound import Constants, bound_terms, measure_norms
    from research.training_loss import training_loss

    seed, tree = run.budget.seed, rounds.best_tree
    length = run.config.model.attention_history
    asked = sample_held_out(run.dataset, run.split, group=None, count=HELD_OUT_USERS, seed=seed)
    plan, generator = LevelPlan.of(tree, config=run.config), np.random.default_rng(seed)

    def score_nodes_for(history: Any) -> Any:
        return scores_of(engine.scorer.prepare(Requests(Histories.of_rows(history[None]))), 0)

    divergences, largest_score = [], 0.0
    for history, target in zip(asked.histories(length), asked.targets, strict=True):
        score_nodes = score_nodes_for(history)
        measures = measure_levels(score_nodes, target=int(target), plan=plan, generator=generator)
        divergences.append(measures.from_level[~plan.taken_whole].sum())
        for level in range(1, plan.exact_depth + 1):
            scores = plan.occupied.scores_of_level(score_nodes, level)
            largest_score = max(largest_score, float(np.abs(scores[np.isfinite(scores)]).max()))
    labels = measure_label_changes(estimator, asked, name="encoder", tree=tree, seed=seed, thresholds=[ASSUMED_ERROR])
    instances = run.instances.with_one_target()
    batch = instances.batch(np.sort(generator.integers(len(instances), size=TRAINING_INSTANCES)))
    targets = batch.targets[:, 0]
    rectified = rectified_labels(softmax(item_scores_of(estimator, batch.requests)), targets, tree=tree)
    loss = training_loss(
        score_nodes_for, batch.histories.latest(length), targets, plan=plan, labels=rectified, generator=generator
    )
    constants = Constants(
        instances=len(instances),
        empirical_loss=loss.mean,
        divergence=float(np.mean(divergences)),
        label_discrepancy=labels.changes[0].changed_per_target.mean,
        assumed_error=ASSUMED_ERROR,
        largest_score=largest_score,
    )
    attention = {
        name.removeprefix("attention/"): array
        for name, array in rounds.best_weights.items()
        if name.startswith("attention/")
    }
    return bound_terms(measure_norms(attention, settings=run.config.model), constants, tree=tree)
