"""Which scorer a model's arrays get: the kernels' where they know all parts, torch's elsewhere, or words that help."""

import sys

import numpy as np
import pytest

from beamtree import native
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.model.memory import MemoryWeights
from beamtree.model.self_attention import SelfAttention
from beamtree.model.torch_scorer import TorchScorer
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from tests.model.test_new_part import make_taste
from tests.native.random_towers import random_tower
from tests.retrieval.test_memory_search import named, random_memory, random_requests
from tests.small import model_settings, random_tree, score_of, stirred_model

TREE = random_tree(80, branching=3, seed=3, num_leaves=90)
CONFIG = Config(model=model_settings())


def arrays(parts: str) -> dict[str, np.ndarray]:
    """Of a random attention, memory and tower, or some of them."""
    tower = random_tower(np.random.default_rng(8), TREE, SelfAttention(12, layers=2, heads=2, history_length=20))
    made = {
        "attention": score_of(stirred_model(CONFIG.model, TREE, seed=0)).arrays(),
        "memory": named(random_memory(80, seed=1, weights=MemoryWeights(0.8, 0.4, 0.1, fade=0.7, company=0.5))),
        "tower": {f"tower/{name}": array for name, array in tower.arrays().items()},
    }
    return {name: array for part in parts.split() for name, array in made[part].items()}


@pytest.mark.parametrize(
    "parts",
    ["attention", "memory", "tower", "attention memory", "attention tower", "memory tower", "attention memory tower"],
)
@pytest.mark.parametrize("filters", ["none", "both"])
@pytest.mark.parametrize("attention_levels", [None, 1, 3, 50])
def test_without_kernels_torch_gives_the_same_answers(
    parts: str, filters: str, attention_levels: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = Config(model=model_settings(attention_levels=attention_levels))
    requests = random_requests(TREE, seed=5, filters=filters)
    compiled = Engine(build_scorer(arrays(parts), TREE, config=config), TREE)
    monkeypatch.setattr(native, "is_available", lambda: False)
    scorer = build_scorer(arrays(parts), TREE, config=config)
    assert isinstance(scorer, TorchScorer)
    plain = Engine(scorer, TREE)
    for found, expected in [
        (compiled.search(requests, k=6, beam_width=12), plain.search(requests, k=6, beam_width=12)),
        (compiled.scan(requests, k=6), plain.scan(requests, k=6)),
    ]:
        np.testing.assert_array_equal(found.items, expected.items)
        np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5, atol=1e-4)


def test_levels_above_the_last_ones_do_without_attention() -> None:
    requests = random_requests(TREE, seed=5, filters="none")
    whole, last = (
        build_scorer(arrays("attention"), TREE, config=Config(model=model_settings(attention_levels=levels))).prepare(
            requests
        )
        for levels in (None, 2)
    )
    for level, size in enumerate(TREE.level_sizes):
        everywhere, near_leaves = (scores.scores(2, level, np.arange(size)) for scores in (whole, last))
        assert everywhere.any()
        np.testing.assert_array_equal(near_leaves, everywhere if level >= TREE.height - 1 else np.zeros(size))


def test_without_kernels_and_torch_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)
    for module in [name for name in sys.modules if name.startswith("beamtree.model.torch_scorer")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"search needs the package torch\. Install a C\+\+ compiler"):
        build_scorer(arrays_of_memory(), TREE, config=CONFIG)


def arrays_of_memory() -> dict[str, np.ndarray]:
    return named(random_memory(80, seed=1, weights=MemoryWeights()))


def test_a_part_that_nobody_knows_is_named() -> None:
    weights = {**arrays_of_memory(), "bias/table": np.zeros(3)}
    with pytest.raises(InputError, match=r"does not know: bias\. Load it in Python .* parts=\{'bias': \.\.\.\}\)\."):
        build_scorer(weights, TREE, config=CONFIG)


@pytest.mark.parametrize("name", ["attention", "memory", "tower", "rank", "because_of", "a/b", ""])
def test_names_that_mean_something_else_are_refused_before_any_work(name: str) -> None:
    with pytest.raises(InputError, match=rf"cannot be called {name!r}\. Choose a name without a slash"):
        DeepTreeRetriever(parts={name: make_taste})
