"""Counting on a cluster gives the numbers of one process, and relearning its placement."""

from dataclasses import replace

import numpy as np
import pytest

from beamtree.cluster.connection import Cluster
from beamtree.cluster.counting import ClusterCounting, _by_bucket
from beamtree.cluster.relearning import ClusterScoring
from beamtree.data.split import split_none
from beamtree.model.counting import HERE, Counters, count_followers
from beamtree.model.memory import Memory
from beamtree.training.candidate_scores import torch_candidate_scores
from beamtree.training.relearn import relearn_tree
from beamtree.types import Int64Array
from tests.small import assert_same_bytes, model_settings, score_of, sequences_of, stirred_model
from tests.training.runs import ring_instances, ring_tree

GENERATOR = np.random.default_rng(11)
LISTS = [GENERATOR.integers(0, 30, size=size).tolist() for size in GENERATOR.integers(1, 40, size=50)]


def memory_by(counters: Counters) -> Memory:
    sequences = sequences_of(LISTS)
    spans = split_none(sequences).train
    return Memory.count(sequences, spans, num_items=33, followers=6, window=3, counters=counters)


@pytest.mark.parametrize("pairs_of_a_task", [10**9, 2000])
def test_counts_are_those_of_one_process(two_nodes: Cluster, pairs_of_a_task: int) -> None:
    """Lists are cut to six items, so that a list that was cut before it was merged would show."""
    counting = ClusterCounting(two_nodes, pairs_of_a_task=pairs_of_a_task)
    assert_same_bytes(memory_by(counting.counters()).arrays(), memory_by(HERE).arrays())


def test_weighed_counts_are_those_of_one_process(two_nodes: Cluster) -> None:
    plain = sequences_of(LISTS)
    weights = GENERATOR.choice([0.0, 1.0, 2.5], size=len(plain.items)).astype(np.float32)
    sequences = replace(plain, weights=weights)
    spans = split_none(sequences).train
    there, here = (
        Memory.count(sequences, spans, num_items=33, followers=33, window=3, counters=counters).arrays()
        for counters in (ClusterCounting(two_nodes, pairs_of_a_task=2000).counters(), HERE)
    )
    assert there.keys() == here.keys()
    for name, expected in here.items():
        np.testing.assert_allclose(there[name], expected, rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("bound", [300, 5000])
def test_a_task_meets_no_more_pairs_than_it_may_hold(two_nodes: Cluster, bound: int) -> None:
    """Whatever the number of workers: a larger log has more tasks. A single span is never cut."""
    sequences = sequences_of(LISTS * 5)
    spans = split_none(sequences).train

    def pairs_of(lengths: Int64Array) -> Int64Array:
        return lengths**2

    counting = ClusterCounting(two_nodes, pairs_of_a_task=bound)
    shards = counting._shards(sequences.items, spans, None, pairs_each=pairs_of)
    met = [pairs_of(shard.spans.end - shard.spans.start) for shard in shards]
    assert max(int(pairs.sum() - pairs.max(initial=0)) for pairs in met) <= bound
    assert sum(int(pairs.sum()) for pairs in met) == int(pairs_of(spans.end - spans.start).sum())
    assert len(shards) >= 2
    assert all(len(shard.items) == int((shard.spans.end - shard.spans.start).sum()) for shard in shards)


def test_pairs_are_merged_by_the_task_that_their_source_falls_to() -> None:
    sequences = sequences_of(LISTS)
    pairs = count_followers(sequences.items, split_none(sequences).train, num_items=33, window=3, most=33)
    buckets = _by_bucket(pairs, buckets=4)
    assert [set(bucket.sources % 4) for bucket in buckets] == [{0}, {1}, {2}, {3}]
    found = {(s, t): n for bucket in buckets for s, t, n in zip(*bucket, strict=True)}
    sources = np.repeat(np.arange(33), np.diff(pairs.offsets))
    assert found == {(s, t): n for s, t, n in zip(sources, pairs.items, pairs.counts, strict=True)}
    assert len(found) == len(pairs.items) == sum(len(bucket.sources) for bucket in buckets)


def test_one_worker_counts_the_same(two_nodes: Cluster) -> None:
    alone = ClusterCounting(Cluster(two_nodes.address, workers=1))
    assert_same_bytes(memory_by(alone.counters()).arrays(), memory_by(HERE).arrays())


def test_a_tree_that_is_relearned_on_a_cluster(two_nodes: Cluster) -> None:
    tree, instances = ring_tree(), ring_instances()
    add_scores = torch_candidate_scores(score_of(stirred_model(model_settings(), tree, seed=3)))
    here = relearn_tree(tree, instances, add_scores=add_scores, stride=1)
    there = relearn_tree(tree, instances, add_scores=add_scores, stride=1, score=ClusterScoring(two_nodes))
    np.testing.assert_array_equal(there.tree.item_at_leaf, here.tree.item_at_leaf)
    assert there.score_after == pytest.approx(here.score_after, rel=1e-6)
    assert there.score_before == pytest.approx(here.score_before, rel=1e-6)
