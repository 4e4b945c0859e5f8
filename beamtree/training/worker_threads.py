"""Worker threads for parts of a batch, each with its own cores, without synchronisation until all are done."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

ArgumentT = TypeVar("ArgumentT")
ResultT = TypeVar("ResultT")


class WorkerThreads:
    """Threads that share the cores torch may use now evenly, at least one each; elsewhere torch goes on as before.

    Torch itself divides each operation between all cores and waits for them after each: where operations are short, or
    another program has one of the cores, it mostly waits.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count)
        cores, all_started = torch.get_num_threads(), threading.Barrier(count)

        def start() -> None:
            torch.get_num_threads()  # makes torch take its common setting for this thread now, not after the next line
            torch.set_num_threads(max(1, cores // count))
            all_started.wait()

        for started in [self._pool.submit(start) for _ in range(count)]:
            started.result()
        torch.set_num_threads(cores)  # for all other threads; those of the pool keep what they have set

    def map(self, function: Callable[[ArgumentT], ResultT], arguments: Sequence[ArgumentT]) -> list[ResultT]:
        """The results in the order of the arguments; the first exception is raised, if there is one."""
        return list(self._pool.map(function, arguments))

    def run(self, function: Callable[[], ResultT]) -> ResultT:
        """The result of a function, computed by one of the threads: torch wakes no others for it."""
        return self._pool.submit(function).result()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """For work that leaves little to torch: waking its threads beside the kernels' would cost more than it saves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
