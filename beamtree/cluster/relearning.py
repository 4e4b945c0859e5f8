"""Scoring where items could stand, on a cluster: each task reads the instances of some items and scores these."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from beamtree.cluster.connection import Cluster, connected, results_of
from beamtree.training.relearn import StageScoring, score_candidates
from beamtree.types import Float64Array, Int64Array

TASKS_PER_WORKER = 4


@dataclass(frozen=True)
class ClusterScoring:
    """Scores candidates by the tasks of a cluster, in the way of `score_candidates`."""

    cluster: Cluster

    def __call__(self, scoring: StageScoring, on_step: Callable[[], None]) -> Float64Array:
        """Score (items, candidates) of each item for the candidates below its node; NaN rows for items without data.

        The instances of an item are added up by one task, in their order: sums are those of one process up to what the
        kernels round differently in batches of other instances.
        """
        with connected(self.cluster) as ray:
            tasks = TASKS_PER_WORKER * self.cluster.num_workers()
            tree, chosen = scoring.tree, scoring.chosen
            targets = scoring.instances.targets()[chosen]
            up_to = np.cumsum(np.bincount(targets, minlength=tree.num_items))
            bounds = np.searchsorted(up_to, len(chosen) * np.arange(1, tasks) / tasks, side="left") + 1
            bounds = np.concatenate([[0], np.minimum(bounds, tree.num_items), [tree.num_items]])
            shared = ray.put(scoring)
            task = ray.remote(num_cpus=self.cluster.threads)(_scores_of_items)
            pending = []
            for first, end in pairwise(bounds):
                own = chosen[(targets >= first) & (targets < end)]
                pending.append(task.remote(shared, own, int(first), int(end), self.cluster.threads))
            waiting = list(pending)
            while waiting:
                on_step()
                _, waiting = ray.wait(waiting, timeout=1.0)
            return np.concatenate(results_of(ray, pending))


def _scores_of_items(scoring: StageScoring, chosen: Int64Array, first: int, end: int, threads: int) -> Float64Array:
    """The scores of the items first to end - 1, whose instances the chosen ones are."""
    from beamtree import native

    if native.is_available():
        native.set_threads(threads)
    sums = score_candidates(replace(scoring, chosen=chosen), lambda: None)
    return sums[first:end].copy()  # only their pages of the whole array were ever touched
