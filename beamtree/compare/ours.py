"""beamtree's presets as systems of a comparison."""

import hashlib

from beamtree.baselines.protocol import Baseline, Budget
from beamtree.baselines.registry import Entry
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.config import Config, PresetName
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer


class Preset:
    """A preset as it is, under the protocol, seed and encoder budget of the comparison."""

    def __init__(self, name: str, preset: PresetName) -> None:
        self.name = name
        self._preset: PresetName = preset

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> BeamIndex:
        """As `Baseline.fit`."""
        from beamtree.baselines.encoder import config_within
        from beamtree.fitting.fit import fit_model
        from beamtree.fitting.run import WorkDirectory

        shared = budget.config if self._preset == "instant" else config_within(budget, dataset, split)
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
        return BeamIndex(engine, artefact.config.retrieval.beam_width, held)

    def _config(self, shared: Config) -> Config:
        """The preset, with what a comparison decides for all systems alike."""
        sections = {
            "log": shared.log.model_dump(),
            "data": shared.data.model_dump(),
            "retrieval": {"exclude_seen": shared.retrieval.exclude_seen},
            "training": {"seed": shared.training.seed},
            "model": {"history_length": shared.model.history_length},
            "decided": shared.decided.model_dump(),
        }
        if self._preset != "instant":
            sections["estimator"] = shared.estimator.model_dump()
        return Config.preset(self._preset, **sections)


def _entry(name: str, preset: PresetName, description: str, *, learns: bool) -> Entry:
    def make() -> Baseline:
        return Preset(name, preset)

    return Entry(
        make,
        description,
        not_simple=lambda _dataset, _config: "it is no baseline",
        libraries=("torch",),
        extra="train",
        learns=learns,
    )


OURS = {
    "beamtree": _entry("beamtree", "default", "the default: sequence encoder and counts over a tree", learns=True),
    "beamtree-instant": _entry("beamtree-instant", "instant", "counted memory alone over a tree", learns=False),
}
