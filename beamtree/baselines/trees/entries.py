"""The tree systems of the comparison, in the order of tables, and the baseline that PLT, TDM and JTM share."""

from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.dtr import Dtr
from beamtree.baselines.trees.jtr import Jtr
from beamtree.baselines.trees.otm import Otm
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


_plt, _tdm, _jtm = (
    partial(TreeSystem, name, table) for name, table in (("plt", "separate"), ("tdm", "separate"), ("jtm", "shared"))
)
_learned = partial(Entry, libraries=("torch",), extra="train", learns=True)

ENTRIES: tuple[Entry, ...] = (
    _learned(Jtr, "a tree of overlapping buckets of items under a sequence encoder"),
    _learned(_plt, "a label tree: products of conditional probabilities along the path"),
    _learned(_tdm, "node-wise binary cross-entropy, uniform negatives, a reclustered tree"),
    _learned(_jtm, "the same loss, histories read as ancestors, a tree relearned by likelihood"),
    _learned(Otm, "JTM's tree, trained on the candidates of the beam with corrected labels"),
    _learned(partial(Dtr, "dtr-u"), "softmax on each level of a tree, uniform negatives, as published"),
    _learned(partial(Dtr, "dtr-t"), "softmax on each level, top-down negatives, as published"),
    _learned(partial(Dtr, "dtr-t-rl"), "the same with labels rectified by SASRec, as published"),
)
"""Every system; `Entry.fit` gives an `Index` whose effort is the beam width."""
