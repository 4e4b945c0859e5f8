"""One Ray cluster of two nodes for all tests of this folder: starting it takes many seconds.

Nothing here may depend on how busy the machine is, or on what else runs on it: no short timeout, no fixed port.
"""

import logging
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from beamtree.cluster.connection import Cluster

STORE_BYTES = 100 * 2**20
ROOT = Path(__file__).parents[2]
CPUS_OF_A_NODE = 2
PATIENCE = 600.0
"""Seconds to wait for what takes a few of them on a quiet machine."""

SECONDS_OF_A_TEST = 1800
ATTEMPTS = 5

ENVIRONMENT = {
    "PYTHONPATH": str(ROOT),  # what workers are sent is defined in tests
    "OMP_NUM_THREADS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # by default workers give way to everything else that runs
    "RAY_memory_monitor_refresh_ms": "0",  # it kills workers for the memory that other programs take
    "RAY_gcs_server_port_wait_time_s": str(int(PATIENCE)),
    "RAY_worker_register_timeout_seconds": str(int(PATIENCE)),  # a worker that takes longer to start is killed
}


def add_node(nodes: Any) -> Any:
    """One more node, when it is up: a raylet whose agent takes more than 15 seconds to start gives up, so again."""
    for attempts_left in reversed(range(ATTEMPTS)):
        try:
            return nodes.add_node(
                wait=False,  # half a minute; `_patient` waits already
                num_cpus=CPUS_OF_A_NODE,
                object_store_memory=STORE_BYTES,
                include_dashboard=False,
                dashboard_agent_listen_port=0,
            )
        except Exception:  # Ray raises no narrower one
            if not attempts_left:
                raise
    return None


def wait_until(is_so: Callable[[], bool], *, what: str) -> None:
    """Return as soon as something is so; TimeoutError long after it should have been."""
    given_up_at = time.monotonic() + PATIENCE
    while not is_so():
        if time.monotonic() > given_up_at:
            raise TimeoutError(f"Waited {PATIENCE:.0f} seconds in vain: {what}.")
        time.sleep(0.05)


def wait_for_free_cpus(nodes: Any) -> None:
    """Return when nothing that earlier tests started holds a CPU any more: workers are spread over all nodes then."""
    import ray

    every = CPUS_OF_A_NODE * len(nodes.list_all_nodes())
    wait_until(lambda: ray.available_resources().get("CPU", 0) == every, what="not all CPUs are free")


@pytest.fixture(scope="package")
def nodes() -> Iterator[Any]:
    """Two nodes of two CPUs each, which share nothing but this machine's disk; the first is the head."""
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        make_record = logging.getLogRecordFactory()  # Ray puts one in its place that marks every record of the process
        import ray
        from ray._private import ray_constants, services
        from ray.cluster_utils import Cluster as Nodes

        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setattr(ray_constants, "RAY_DASHBOARD_STARTUP_TIMEOUT_S", int(PATIENCE))  # read when Ray was imported
        patch.setattr(services, "get_node", _patient(services.get_node, services.psutil))
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
            item.add_marker(pytest.mark.timeout(SECONDS_OF_A_TEST))


@pytest.fixture(autouse=True)
def _quiet_ray() -> Iterator[None]:
    """Ray's own warnings are not ours to mend."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning, module="ray")
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="ray")
        warnings.filterwarnings("ignore", category=ResourceWarning)
        warnings.filterwarnings("ignore", category=pytest.PytestUnraisableExceptionWarning)
        yield


def _patient(get_node: Callable[..., Any], psutil: Any) -> Callable[..., Any]:
    """As Ray's way to see whether a node that it has just started is up, but for as long as its raylet runs."""

    def is_running(node_id: str) -> bool:
        for child in psutil.Process().children():
            try:
                if f"--node_id={node_id}" in child.cmdline():
                    return True
            except psutil.Error:  # it has just ended
                continue
        return False

    def get_when_there(gcs_address: str, node_id: str) -> Any:
        given_up_at = time.monotonic() + PATIENCE
        while True:
            try:
                return get_node(gcs_address, node_id)
            except RuntimeError:
                if not is_running(node_id) or time.monotonic() > given_up_at:
                    raise ChildProcessError(f"The raylet of node {node_id} ended, or did not come up.") from None
                time.sleep(0.1)

    return get_when_there
