"""One Ray cluster of two nodes for all tests of this folder: starting it takes many seconds."""

import warnings
from collections.abc import Iterator

import pytest

from beamtree.cluster.connection import Cluster

STORE_BYTES = 100 * 2**20


@pytest.fixture(scope="session")
def two_nodes() -> Iterator[Cluster]:
    """Two nodes of two CPUs each, which share nothing but this machine's disk; two workers of one thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray.cluster_utils import Cluster as Nodes

        nodes = Nodes()
        try:
            for _ in range(2):
                nodes.add_node(num_cpus=2, object_store_memory=STORE_BYTES, include_dashboard=False)
            nodes.wait_for_nodes()
            ray.init(address=nodes.address, log_to_driver=False, logging_level="warning")
            yield Cluster(nodes.address, workers=2)
        finally:
            ray.shutdown()
            nodes.shutdown()
