"""A score of all parts searched by the kernels, against the same sum in plain writing."""

from typing import Any

import numpy as np
import pytest

from beamtree import native
from beamtree.config import Config, EstimatorSettings
from beamtree.data.requests import Requests
from beamtree.model.memory import MemoryWeights
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.types import Float32Array, Int64Array
from tests.native.random_towers import PlainTower, random_tower
from tests.retrieval.numpy_scorer import NumpyScorer
from tests.retrieval.test_memory_search import named, random_memory, random_requests
from tests.small import model_settings, random_tree, score_of, stirred_model

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")

TREE = random_tree(160, branching=2, seed=3, num_leaves=170)


class PlainSum:
    """A tower beside what the NumPy scorer knows."""

    def __init__(self, tower: PlainTower, others: NumpyScorer | None) -> None:
        self._tower = tower
        self._others = others

    def prepare(self, requests: Requests) -> "PlainSums":
        return PlainSums(self._tower, self._others, requests)


class PlainSums:
    def __init__(self, tower: PlainTower, others: NumpyScorer | None, requests: Requests) -> None:
        self._tower = tower
        self._others = None if others is None else others.prepare(requests)
        self._vectors = tower.encode(requests.histories)

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        own = self._tower.scores(self._vectors[request], level, nodes)
        return own if self._others is None else own + self._others.scores(request, level, nodes)


@pytest.mark.parametrize("filters", ["none", "both"])
@pytest.mark.parametrize("attention_levels", [None, 1, 3, 50])
@pytest.mark.parametrize("parts", [(), ("memory",), ("attention",), ("attention", "memory")])
def test_beam_and_scan_find_what_the_plain_sum_finds(
    parts: tuple[str, ...], attention_levels: int | None, filters: str
) -> None:
    config = Config(
        model=model_settings(attention_levels=attention_levels), estimator=EstimatorSettings(width=12, heads=3)
    )
    tower = random_tower(np.random.default_rng(8), TREE, width=12, layers=2, heads=3, history_length=20)
    weights: dict[str, Any] = {}
    if "attention" in parts:
        weights |= score_of(stirred_model(config.model, TREE, seed=0)).arrays()
    if "memory" in parts:
        weights |= named(random_memory(160, seed=1, weights=MemoryWeights(0.8, 0.4, 0.1, fade=0.7, company=0.5)))
    plain = PlainSum(tower, NumpyScorer(weights, TREE, config=config) if weights else None)
    weights |= {f"tower/{name}": array for name, array in tower.arrays().items()}
    requests = random_requests(TREE, seed=5, filters=filters)
    compiled, expected = Engine(build_scorer(weights, TREE, config=config), TREE), Engine(plain, TREE)
    for found, wanted in [
        (compiled.search(requests, k=6, beam_width=10), expected.search(requests, k=6, beam_width=10)),
        (compiled.scan(requests, k=6), expected.scan(requests, k=6)),
    ]:
        np.testing.assert_array_equal(found.items, wanted.items)
        np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-4, atol=1e-4)


def test_levels_above_the_last_ones_do_without_attention() -> None:
    weights = score_of(stirred_model(model_settings(), TREE, seed=0)).arrays()
    requests = random_requests(TREE, seed=5, filters="none")
    whole, last = (
        build_scorer(weights, TREE, config=Config(model=model_settings(attention_levels=levels))).prepare(requests)
        for levels in (None, 2)
    )
    for level, size in enumerate(TREE.level_sizes):
        everywhere, near_leaves = (scores.scores(2, level, np.arange(size)) for scores in (whole, last))
        assert everywhere.any()
        np.testing.assert_array_equal(near_leaves, everywhere if level >= TREE.height - 1 else np.zeros(size))
