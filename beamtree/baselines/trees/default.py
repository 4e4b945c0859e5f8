"""Beamtree's own default, or whatever the comparison's settings are: fitted as `beamtree fit` fits it.

Where seconds bound the comparison, its encoder learns from as many positions as fit into them.
"""

from dataclasses import dataclass

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

ENCODER_SHARE = 0.7
"""Of the time that there is, what the steps of the encoder are planned to take; weighing the parts takes the rest."""
MODEL_ARRAYS = ("tower/encoder.", "tower/weight", "attention/mlp.", "attention/attention.", "attention/norm.")
"""Arrays that encode a request or score any node, and belong to the model rather than to the index."""


@dataclass
class Beamtree:
    """The whole product behind the contract."""

    name: str = "beamtree"

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`; goes on from the checkpoints in the budget's directory."""
        from beamtree.baselines.trees.encoder import budget_for_encoder
        from beamtree.fitting.fit import fit_model
        from beamtree.fitting.run import WorkDirectory
        from beamtree.retrieval.engine import Engine
        from beamtree.retrieval.scorers import build_scorer

        config = budget_for_encoder(budget, dataset, split, share=ENCODER_SHARE)
        fitted = fit_model(
            dataset,
            split,
            config=config,
            work=None if budget.directory is None else WorkDirectory(budget.directory / self.name, resume=True),
            listen=budget.listen,
            should_stop=budget.should_stop,
            estimator_cache=budget.directory,
        )
        tree = fitted.tree
        evidence = sum(array.nbytes for name, array in fitted.weights.items() if not name.startswith(MODEL_ARRAYS))
        engine = Engine(build_scorer(fitted.weights, tree, config=config), tree)
        index_bytes = evidence + tree.item_at_leaf.nbytes + tree.leaf_of_item.nbytes
        return BeamIndex(engine, config.retrieval.beam_width, index_bytes)
