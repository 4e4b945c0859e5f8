"""A fit on a cluster: the long stages of an ordinary fit, each carried out by many workers."""

from beamtree.cluster.connection import Cluster
from beamtree.cluster.counting import ClusterCounting
from beamtree.cluster.learning import ClusterTraining
from beamtree.cluster.relearning import ClusterScoring
from beamtree.fitting.backend import FitBackend


def cluster_backend(cluster: Cluster, *, uses_gpu: bool) -> FitBackend:
    """Learning, counting and scoring by the workers of a cluster. uses_gpu: the model learns on one GPU per worker."""
    return FitBackend(
        train=ClusterTraining(cluster, uses_gpu=uses_gpu),
        counters=ClusterCounting(cluster).counters(),
        score_candidates=ClusterScoring(cluster),
    )
