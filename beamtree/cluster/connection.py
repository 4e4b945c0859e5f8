"""Which cluster, how many workers, and how to reach it."""

import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from beamtree.errors import BeamtreeError, ClusterError, InputError

SECONDS_TO_ANSWER = 10.0
"""How long the head of a cluster may take to accept a connection; Ray itself tries for a quarter of an hour."""


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster and what beamtree may take of it.

    address: "auto" for the cluster that this machine belongs to, the address of another one, or "local", which starts
    Ray on this machine alone. workers: how many processes compute; None = as many as the CPUs of the cluster allow.
    threads: CPUs of each of them. parts: what each batch is cut into, at least one part for each worker, the default;
    the same parts give the same steps, up to rounding, whatever the number of workers.
    """

    address: str = "auto"
    workers: int | None = None
    threads: int = 1
    parts: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("threads", self.threads), ("parts", self.parts)):
            if value is not None and value < 1:
                raise InputError(f"{name} of a cluster: expected at least 1, got {value}.")

    def num_workers(self) -> int:
        """The workers that were asked for, or as many as there are CPUs for. Inside `connected`.

        InputError where the cluster could never hold them: they would be waited for without end.
        """
        cpus = int(import_ray().cluster_resources().get("CPU", 0))
        room = cpus // self.threads
        wanted = max(1, room) if self.workers is None else self.workers
        if wanted > room:
            raise InputError(
                f"{wanted} workers with {self.threads} CPUs each do not fit: the cluster has {cpus} CPUs. Ask for "
                "fewer (--workers), or add nodes."
            )
        return wanted


def as_cluster(cluster: Cluster | str) -> Cluster:
    """A cluster, or the one at an address."""
    return Cluster(cluster) if isinstance(cluster, str) else cluster


@contextmanager
def connected(cluster: Cluster) -> Iterator[Any]:
    """Inside, this process is a driver of the cluster; gives the module ray. A connection that was there stays.

    InputError where Ray is not installed or there is no such cluster.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        _refuse_closed_port(cluster.address)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="warning")
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"There is no Ray cluster at {cluster.address!r} ({str(error).splitlines()[0]}). Start one with `ray start "
            "--head`, give the address of another one, or 'local' for this machine alone."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def results_of(ray: Any, tasks: Sequence[Any]) -> list[Any]:
    """What tasks of Ray gave. Where some fail, the error of the first, as it was raised there; others are cancelled.

    ClusterError for a task whose workers died again and again.
    """
    try:
        return [ray.get(task) for task in tasks]
    except BaseException as error:
        for task in tasks:
            ray.cancel(task)
        if isinstance(error, ray.exceptions.RayTaskError) and isinstance(error.cause, BeamtreeError):
            raise error.cause from None
        if isinstance(error, ray.exceptions.RayError) and not isinstance(error, ray.exceptions.RayTaskError):
            raise ClusterError(
                f"A task could not be finished ({str(error).splitlines()[0]}). Look at the nodes and their memory, and "
                "run this again."
            ) from error
        raise


def _refuse_closed_port(address: str) -> None:
    """OSError where nothing listens at HOST:PORT; an address of another form is left to Ray."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), timeout=SECONDS_TO_ANSWER).close()


def import_ray() -> Any:
    """The module ray; InputError says how to install it."""
    try:
        import ray
    except ModuleNotFoundError as missing:
        raise InputError(
            f'More than one machine needs the package {missing.name}: pip install "beamtree[ray]", on every node.'
        ) from missing
    return ray
