"""Relearning the tree: items go where their instances want them, and nobody is lost on the way."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree import native
from beamtree.data.split import split_none
from beamtree.training import candidate_scores
from beamtree.training.candidate_scores import native_candidate_scores, torch_candidate_scores
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.relearn import Stage, relearn_tree, stages
from beamtree.tree.assign import assign_balanced
from beamtree.tree.build import plant
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float64Array, Int64Array
from tests.small import model_settings, random_tree, score_of, sequences_of, stirred_model


def instances_of(num_items: int, *, seed: int = 0) -> TrainingInstances:
    """Each item is a target at least once."""
    order = np.random.default_rng(seed).permutation(num_items).tolist()
    sequences = sequences_of([[0, *order], order[::-1]])
    return TrainingInstances(sequences, split_none(sequences).train, first_target=1)


def test_strides() -> None:
    tree = plant(np.arange(3000), branching=2)
    assert stages(tree) == [Stage(0, 7), Stage(7, 12)]
    assert stages(plant(np.arange(20), branching=5)) == [Stage(0, 2)]
    assert stages(plant(np.arange(8), branching=2), stride=2) == [Stage(0, 2), Stage(2, 3)]


@settings(max_examples=40, deadline=None)
@given(
    num_items=st.integers(1, 60),
    vacant=st.integers(0, 7),
    branching=st.integers(2, 5),
    stride=st.one_of(st.none(), st.integers(1, 3)),
    seed=st.integers(0, 10_000),
)
def test_items_that_know_where_they_want_to_go_get_there(
    num_items: int, vacant: int, branching: int, stride: int | None, seed: int
) -> None:
    old = random_tree(num_items, branching=branching, seed=seed, num_leaves=num_items + vacant)
    wanted = random_tree(num_items, branching=branching, seed=seed + 1, num_leaves=num_items + vacant)

    def add_scores(sums: Float64Array, batch: Batch, node_of_item: Int64Array, stage: Stage) -> None:
        for item in batch.targets[:, 0]:
            first_leaf, _ = old.leaf_ranges(node_of_item[item], stage.upper)
            place = wanted.item_ancestors(item, stage.lower) - old.ancestors(first_leaf, stage.lower)
            sums[item] -= 1.0
            sums[item, place] += 1.0

    relearned = relearn_tree(old, instances_of(num_items, seed=seed), add_scores=add_scores, stride=stride)
    targets = set(instances_of(num_items, seed=seed).targets().tolist())
    if len(targets) == num_items:
        assert relearned.tree.item_at_leaf.tolist() == wanted.item_at_leaf.tolist()
    assert relearned.score_after >= relearned.score_before
    assert relearned.moved_share == np.mean(relearned.tree.leaf_of_item != old.leaf_of_item)


def relearn(tree: ItemTree, *, in_kernels: bool, most: int | None = None) -> list[int]:
    """The new leaves. Placed greedily: an auction's prices would tell scores apart that differ by rounding only."""
    sizes = model_settings(normalisation="layer")
    model = stirred_model(sizes, tree, seed=3)
    scores = native_candidate_scores(model) if in_kernels else torch_candidate_scores(score_of(model))
    instances = instances_of(tree.num_items)
    leaves: list[int] = relearn_tree(
        tree, instances, add_scores=scores, stride=2, instances_per_item=most, assign=assign_balanced
    ).tree.item_at_leaf.tolist()
    return leaves


@pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")
@pytest.mark.parametrize("branching", [2, 3])
def test_kernels_and_torch_place_alike(branching: int) -> None:
    tree = random_tree(29, branching=branching, seed=5, num_leaves=33)
    placed = relearn(tree, in_kernels=True)
    assert placed == relearn(tree, in_kernels=False)
    assert placed != tree.item_at_leaf.tolist()


def test_torch_reads_a_batch_in_blocks_to_the_same_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = random_tree(29, branching=2, seed=5, num_leaves=33)
    at_once = relearn(tree, in_kernels=False)
    monkeypatch.setattr(candidate_scores, "SCORES_AT_A_TIME", 20)
    assert relearn(tree, in_kernels=False) == at_once


def test_a_cap_on_instances_reads_the_first_ones_of_each_item() -> None:
    seen: list[int] = []

    def add_scores(sums: Float64Array, batch: Batch, _nodes: Int64Array, stage: Stage) -> None:
        if stage.upper == 0:
            seen.extend(batch.targets[:, 0].tolist())
        sums[batch.targets[:, 0]] += 0.0

    tree = random_tree(10, branching=2, seed=0)
    relearn_tree(tree, instances_of(10), add_scores=add_scores, instances_per_item=1)
    assert sorted(seen) == list(range(10))
