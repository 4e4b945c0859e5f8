"""A tree system as a baseline: what it is called, how it is fitted, and the module that knows its method."""

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING

from beamtree.baselines.protocol import Budget
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.recipe import PUBLISHED, Recipe, system_config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split

if TYPE_CHECKING:
    from beamtree.baselines.trees.method import Method


@dataclass
class TreeSystem:
    """One of PLT, TDM and JTM: a loss on nodes, and maybe a tree that is learned between rounds.

    Its module, of the same name, and torch with it, is imported when it is fitted, for `make_method`. history_table: as
    in `NetworkSpec`.
    """

    name: str
    history_table: str
    recipe: Recipe = PUBLISHED

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.trees.learning import index_of, learn
        from beamtree.baselines.trees.run import TreeRun

        config = system_config(budget.config, dataset, recipe=self.recipe, history_table=self.history_table)
        run = TreeRun(self.name, dataset, split, budget, config, self.recipe)
        method: Method = import_module(f"beamtree.baselines.trees.{self.name}").make_method()
        return index_of(run, learn(run, method), make_scorer=method.make_scorer)
