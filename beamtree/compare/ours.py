"""beamtree's presets as systems of a comparison."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.config import Config, PresetName
from beamtree.config.loading import merge
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer


@dataclass(frozen=True)
class Preset:
    """A preset under the protocol, seed and encoder budget of the comparison. settings: sections to override."""

    name: str = "beamtree"
    preset: PresetName = "default"
    settings: Mapping[str, Any] = field(default_factory=dict)

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.encoder import config_within
        from beamtree.fitting.fit import fit_model
        from beamtree.fitting.run import WorkDirectory

        shared = Config.resolve(merge(budget.config.model_dump(), self.settings))
        if self.preset != "instant":
            shared = config_within(replace(budget, config=shared), dataset, split)
        config = self._config(shared)
        digest = hashlib.sha256(config.model_dump_json().encode()).hexdigest()[:16]
        work = (
            None if budget.directory is None else WorkDirectory(budget.directory / f"{self.name}-{digest}", resume=True)
        )
        artefact = fit_model(
            dataset,
            split,
            config=config,
            work=work,
            listen=budget.listen,
            should_stop=budget.should_stop,
            estimator_cache=budget.directory,
        )
        engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
        held = sum(array.nbytes for array in artefact.weights.values())
        held += artefact.tree.item_at_leaf.nbytes + artefact.tree.leaf_of_item.nbytes
        training = artefact.training
        findings = {name: training[name] for name in ("weighing", "estimator_seconds") if name in training}
        return BeamIndex(engine, artefact.config.retrieval.beam_width, held, findings=findings)

    def _config(self, shared: Config) -> Config:
        """The preset with its own settings, and with what a comparison decides for all systems alike."""
        sections = {
            "log": shared.log.model_dump(),
            "data": shared.data.model_dump(),
            "retrieval": {"exclude_seen": shared.retrieval.exclude_seen},
            "training": {"seed": shared.training.seed},
            "model": {"history_length": shared.model.history_length},
            "decided": shared.decided.model_dump(),
        }
        if self.preset != "instant":
            sections["estimator"] = shared.estimator.model_dump()
        return Config.preset(self.preset, **merge(self.settings, sections))


def _entry(name: str, preset: PresetName, description: str, *, learns: bool) -> Entry:
    return Entry(partial(Preset, name, preset), description, libraries=("torch",), extra="train", learns=learns)


OURS = {
    "beamtree": _entry("beamtree", "default", "the default: sequence encoder and counts over a tree", learns=True),
    "beamtree-instant": _entry("beamtree-instant", "instant", "counted memory alone over a tree", learns=False),
}
