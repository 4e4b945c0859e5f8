"""What one history shows on every level: exact, and estimated where levels are large."""

import numpy as np
import pytest

from beamtree import native
from beamtree.artefact import Artefact
from beamtree.config import Config
from beamtree.diagnostics.levels import LevelPlan, measure_levels
from beamtree.diagnostics.node_scores import Occupied, scorer_of
from beamtree.tree.build import plant
from tests.diagnostics.levels_by_hand import plan_for, random_leaf_scores, scorer, sums_of_children
from tests.small import (
    model_settings,
    plain_scores,
    random_histories,
    random_tree,
    score_of,
    small_config,
    stirred_model,
)


def test_loss_of_the_targets_ancestors() -> None:
    tree = plant(np.arange(4, dtype=np.int32), branching=2)
    levels = [np.log([0.2, 0.8]), np.log([0.1, 0.2, 0.3, 0.4])]
    found = measure_levels(scorer(levels), target=2, plan=plan_for(tree), generator=np.random.default_rng(0))
    assert found.loss == pytest.approx(-np.log([0.8, 0.3]), abs=1e-6)


def test_levels_that_training_takes_whole() -> None:
    """Two negatives: levels of 2 nodes are whole, 4 and 8 nodes are sampled, from level 2 on."""
    tree = plant(np.arange(8, dtype=np.int32), branching=2)
    plan = plan_for(tree, negatives=2)
    assert plan.taken_whole.tolist() == [True, False, False]
    assert (plan.start, plan.exact_depth) == (2, 3)
    assert plan_for(tree, negatives=7).start == tree.height + 1
    assert LevelPlan.of(tree, config=Config.preset("small", training={"negatives": 2})).start == plan.start


def test_the_start_level_is_always_scored_whole() -> None:
    tree = plant(np.arange(64, dtype=np.int32), branching=2)
    assert plan_for(tree, negatives=14, exact_nodes=2).exact_depth == 4


@pytest.mark.parametrize("branching", [2, 3])
def test_estimates_of_large_levels_are_close_to_the_exact_numbers(branching: int) -> None:
    tree = random_tree(200, branching=branching, seed=2, num_leaves=220)
    levels = sums_of_children(random_leaf_scores(tree, seed=3), tree=tree)
    generator = np.random.default_rng(4)
    levels = [scores + generator.normal(0.0, 0.5, size=scores.shape) for scores in levels]
    target = int(tree.item_at_leaf[tree.item_at_leaf >= 0][7])
    exact = measure_levels(scorer(levels), target=target, plan=plan_for(tree), generator=generator)
    rough_plan = plan_for(tree, exact_nodes=9, draws=20_000)
    assert rough_plan.exact_depth < tree.height - 1
    rough = measure_levels(scorer(levels), target=target, plan=rough_plan, generator=generator)
    for name in ("uniform", "from_root", "from_level", "loss"):
        assert getattr(rough, name) == pytest.approx(getattr(exact, name), abs=0.05), name
    assert exact.from_root.max() > 0.1
    assert rough.child_violations[:-1] == pytest.approx(exact.child_violations[:-1], abs=0.03)
    assert np.isnan(rough.leaf_violations).all()


def test_estimates_hold_where_levels_contradict_each_other() -> None:
    """Draws down the tree avoid one half, where the leaves score highest: without even draws the total is missed."""
    tree = random_tree(4096, branching=2, seed=2, num_leaves=4200)
    generator = np.random.default_rng(5)
    levels = []
    for level in range(1, tree.height + 1):
        right_half = np.arange(tree.level_sizes[level]) >= tree.level_sizes[level] // 2
        favour = -30.0 if level < 6 else 3.0
        levels.append(np.where(right_half, favour, 0.0) + generator.normal(size=len(right_half)))
    target = int(tree.item_at_leaf[tree.item_at_leaf >= 0][7])
    exact = measure_levels(scorer(levels), target=target, plan=plan_for(tree), generator=generator)
    rough = measure_levels(scorer(levels), target=target, plan=plan_for(tree, exact_nodes=32), generator=generator)
    assert exact.uniform[6:] == pytest.approx(1.6, abs=0.4)
    for name in ("uniform", "from_root", "from_level", "loss"):
        assert getattr(rough, name) == pytest.approx(getattr(exact, name), abs=0.4), name


@pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")
@pytest.mark.parametrize("history_table", ["shared", "separate"])
@pytest.mark.parametrize("normalisation", ["none", "layer", "batch"])
def test_nodes_are_scored_as_the_network_scores_them(history_table: str, normalisation: str) -> None:
    tree = random_tree(11, branching=2, seed=1, num_leaves=13)
    settings = model_settings(history_table=history_table, normalisation=normalisation)
    model = stirred_model(settings, tree, seed=0)
    artefact = Artefact(
        config=small_config(model=settings.model_dump()),
        weights=score_of(model).arrays(),
        tree=tree,
        popularity=np.zeros(11, dtype=np.int64),
        item_table=None,  # type: ignore[arg-type]
        data_fingerprint="",
    )
    occupied = Occupied(tree)
    for history in random_histories(4, length=5, num_items=11, generator=np.random.default_rng(0)):
        judge = plain_scores(model, history)
        for level in range(1, tree.height + 1):
            scores = occupied.scores_of_level(scorer_of(artefact)(history), level)
            nodes = occupied.nodes[level]
            assert scores[nodes] == pytest.approx(judge(level, nodes), abs=1e-4)
            assert np.isneginf(scores[~occupied.mask[level]]).all()
