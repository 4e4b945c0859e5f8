"""One Ray cluster of two nodes for all tests of this folder: starting it takes many seconds."""

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from beamtree.cluster.connection import Cluster

STORE_BYTES = 100 * 2**20
ROOT = Path(__file__).parents[2]


def add_node(nodes: Any) -> Any:
    """One more node, when it is up."""
    added = nodes.add_node(num_cpus=2, object_store_memory=STORE_BYTES, include_dashboard=False)
    nodes.wait_for_nodes()
    return added


@pytest.fixture(scope="package")
def nodes() -> Iterator[Any]:
    """Two nodes of two CPUs each, which share nothing but this machine's disk; the first is the head."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        make_record = logging.getLogRecordFactory()  # Ray puts one in its place that marks every record of the process
        import ray
        from ray.cluster_utils import Cluster as Nodes

        patch.setenv("PYTHONPATH", str(ROOT))  # what workers are sent is defined in tests
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        nodes = Nodes()
        try:
            for _ in range(2):
                add_node(nodes)
            ray.init(address=nodes.address, log_to_driver=False, logging_level="error")
            yield nodes
        finally:
            ray.shutdown()
            nodes.shutdown()
            logging.setLogRecordFactory(make_record)


@pytest.fixture(scope="package")
def two_nodes(nodes: Any) -> Cluster:
    """Both nodes, with two workers of one thread."""
    return Cluster(nodes.address, workers=2)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What Ray says of its own settings is no error, in fixtures of any scope either."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"))


@pytest.fixture(autouse=True)
def _quiet_ray() -> Iterator[None]:
    """Ray's own warnings are not ours to mend."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=pytest.PytestUnraisableExceptionWarning)
        yield
