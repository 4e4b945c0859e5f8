"""The settings choose the strategies, in one place."""

import pickle

import pytest

from beamtree.config import Config
from beamtree.training.labels import PlainLabels, RectifiedLabels
from beamtree.training.negatives import UniformSampler
from beamtree.training.placement import AUCTION, PUBLISHED
from beamtree.training.strategies import METHODS, PLACEMENTS, Strategies
from beamtree.training.tree_negatives import TreeSampler

CHOSEN = {
    "dtr-u": (UniformSampler(30), PlainLabels()),
    "dtr-t": (TreeSampler(30), PlainLabels()),
    "dtr-t-rl": (TreeSampler(30), RectifiedLabels()),
}


@pytest.mark.parametrize("method", CHOSEN)
def test_each_method_has_its_negatives_and_labels(method: str) -> None:
    config = Config.resolve({"training": {"method": method}})
    chosen = Strategies.of(config)
    assert (chosen.negatives, chosen.labels) == CHOSEN[method]
    assert chosen.labels.needs_estimator == config.training.asks_estimator
    assert chosen.beside(config) == {}
    assert pickle.loads(pickle.dumps(chosen)) == chosen, "a cluster sends them to its workers"


def test_presets_choose_the_placement() -> None:
    default, paper = Strategies.of(Config()), Strategies.of(Config.preset("paper"))
    assert (default.placement, paper.placement) == (AUCTION, PUBLISHED)
    assert paper.negatives == TreeSampler(70)


def test_every_value_of_the_settings_has_a_strategy() -> None:
    sections = {name: field.annotation for name, field in Config.model_fields.items()}
    methods = sections["training"].model_fields["method"].annotation  # type: ignore[union-attr]
    placements = sections["tree"].model_fields["placement"].annotation  # type: ignore[union-attr]
    assert set(METHODS) == set(methods.__args__)
    assert set(PLACEMENTS) == set(placements.__args__)


def test_what_the_settings_would_not_choose_is_named() -> None:
    uniform = Config.resolve({"training": {"method": "dtr-u", "negatives": 7}})
    strategies = Strategies.of(Config.resolve({"training": {"method": "dtr-t-rl", "negatives": 7}}))
    assert strategies.beside(uniform) == {"negatives": "down the tree, 7 paths", "labels": "rectified"}
