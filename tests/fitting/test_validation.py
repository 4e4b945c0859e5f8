"""How a score is validated while it is learned: by beam where something guides it, else by a scan of the leaves."""

import pickle
from collections.abc import Mapping

import numpy as np
import pytest

from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.split import HeldOut, split_users
from beamtree.evaluation.answers import Answers, BeamSearch, ExactScan
from beamtree.evaluation.protocol import evaluate
from beamtree.fitting import validation
from beamtree.fitting.validation import LazyTower, MakeTower, model_validation, reaches_level
from beamtree.model.score import Score, build_score
from beamtree.model.torch_scorer import TorchScorer
from beamtree.model.tower import TOWER
from beamtree.retrieval.engine import Engine
from beamtree.types import AnyArray
from tests.model.fresh_tower import make_tower
from tests.small import random_tree, small_config, two_group_log

TREE = random_tree(50, branching=2, seed=4)
ENCODER = {"width": 8, "layers": 1}


def config_of(*, attention_levels: int | None, beam_width: int = 3) -> Config:
    return small_config(
        estimator=ENCODER, model={"attention_levels": attention_levels}, retrieval={"beam_width": beam_width}
    )


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return prepare_dataset(two_group_log(users_per_group=40, items_per_group=25), min_interactions=2)


@pytest.fixture(scope="module")
def users(dataset: Dataset) -> HeldOut:
    return split_users(dataset.sequences, seed=3, validation_share=0.6).validation


def stirred(config: Config) -> Score:
    """A score of attention whose weights are large enough to prefer items."""
    score = build_score(config, TREE, seed=1)
    generator = np.random.default_rng(2)
    score.load_arrays({name: generator.normal(size=array.shape) for name, array in score.arrays().items()})
    return score


def validated(
    score: Score, dataset: Dataset, users: HeldOut, *, config: Config, tower: MakeTower | None = None
) -> float:
    validate = model_validation(score, dataset, users, config=config, tower=tower)
    assert validate is not None
    return validate()["ndcg@20"]


def measured(search: Answers, dataset: Dataset, users: HeldOut) -> float:
    return evaluate(search, dataset, users, config=config_of(attention_levels=None), cutoffs=(20,))["ndcg@20"]


def test_attention_on_the_leaves_alone_is_validated_by_scoring_all_of_them(dataset: Dataset, users: HeldOut) -> None:
    config = config_of(attention_levels=1)
    score = stirred(config)
    engine = Engine(TorchScorer(score), TREE)
    found = validated(score, dataset, users, config=config)
    assert found == pytest.approx(measured(ExactScan(engine), dataset, users), rel=1e-6)
    assert found != pytest.approx(measured(BeamSearch(engine, 3), dataset, users), rel=1e-3)


@pytest.mark.parametrize(("attention_levels", "beam_width"), [(None, 3), (2, 16), (4, 4)])
def test_attention_is_validated_by_beam_where_the_beam_reaches_it_whole(
    dataset: Dataset, users: HeldOut, attention_levels: int | None, beam_width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(attention_levels=attention_levels, beam_width=beam_width)
    score = stirred(config)
    expected = measured(BeamSearch(Engine(TorchScorer(score), TREE), beam_width), dataset, users)
    monkeypatch.setattr(Engine, "scan", None)
    assert validated(score, dataset, users, config=config) == pytest.approx(expected, rel=1e-6)


def test_in_large_catalogues_a_tower_guides_the_beam(
    dataset: Dataset, users: HeldOut, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(attention_levels=1)
    score = stirred(config)
    tower = build_score(config, TREE, seed=8, parts={TOWER: make_tower})
    asked = []

    def make() -> Mapping[str, AnyArray]:
        asked.append(1)
        return tower.arrays()

    scanned = validated(score, dataset, users, config=config)
    assert validated(score, dataset, users, config=config, tower=make) == scanned
    assert not asked, "a catalogue of 50 items is scanned"
    monkeypatch.setattr(validation, "MAX_SCANNED_ITEMS", 49)
    both = Engine(TorchScorer(Score(TREE, {**score.parts, **tower.parts})), TREE)
    expected = measured(BeamSearch(both, 3), dataset, users)
    assert validated(score, dataset, users, config=config, tower=make) == pytest.approx(expected, rel=1e-6)
    assert asked
    assert expected != pytest.approx(scanned, rel=1e-4)
    assert validated(score, dataset, users, config=config) == scanned, "without a tower there is nothing else"


def test_a_beam_reaches_a_level_whole_where_the_level_above_fits_it() -> None:
    """Levels of 1, 2, 4, 8 and 16 nodes, and 30 leaves."""
    tree = random_tree(30, branching=2, seed=0)
    reached = [[reaches_level(level, tree, beam_width=width) for level in range(6)] for width in (1, 4, 15, 16)]
    assert [row.count(True) for row in reached] == [2, 4, 5, 6]
    assert all(sorted(row, reverse=True) == row for row in reached)


def test_a_tower_is_made_once_and_sent_made() -> None:
    """Its maker may hold what no other process can have."""
    calls = []

    def make() -> dict[str, AnyArray]:
        calls.append(1)
        return {"tower/weight": np.array(2.0)}

    tower = LazyTower(make)
    assert not calls
    sent = pickle.loads(pickle.dumps(tower))
    assert sent() == tower() == {"tower/weight": 2.0}
    assert calls == [1]
