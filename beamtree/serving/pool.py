"""Threads for searching, and a line in front of them that never grows beyond its bound."""

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from beamtree.serving.refusal import timed_out, too_busy

Result = TypeVar("Result")


@dataclass(frozen=True)
class Done(Generic[Result]):
    """What a job returned, how long it waited and how long it ran, in seconds."""

    result: Result
    waited: float
    ran: float


class SearchPool:
    """Runs jobs on `threads` threads. Beyond those, at most `queue` jobs wait; one more is refused at once."""

    def __init__(self, *, threads: int, queue: int, timeout_seconds: float) -> None:
        self._threads = threads
        self._room = threads + queue
        self._timeout_seconds = timeout_seconds
        self._executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="search")
        self._lock = threading.Lock()
        self._present = 0

    @property
    def running(self) -> int:
        """Jobs on a thread."""
        return min(self._present, self._threads)

    @property
    def waiting(self) -> int:
        """Jobs in the line."""
        return max(0, self._present - self._threads)

    def refuse_if_full(self) -> None:
        """503 before anything is read or parsed, where a job could not even wait."""
        if self._present >= self._room:
            raise too_busy(f"{self.running} searches run and {self.waiting} wait. Try again in a second.")

    async def run(self, job: Callable[[], Result]) -> Done[Result]:
        """Wait for a thread and for the job; 503 where the line is full or the time is over.

        A job that is still waiting when its time is over, or whose client has gone, is never begun.
        """
        self.refuse_if_full()
        asked_at = time.perf_counter()
        with self._lock:
            self._present += 1

        def run_job() -> Done[Result]:
            began_at = time.perf_counter()
            try:
                result = job()
            finally:
                with self._lock:
                    self._present -= 1
            return Done(result, waited=began_at - asked_at, ran=time.perf_counter() - began_at)

        future: Future[Done[Result]] = self._executor.submit(run_job)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise timed_out(self._timeout_seconds) from None
        finally:
            if future.cancelled():
                with self._lock:
                    self._present -= 1

    def close(self) -> None:
        """Let running jobs finish and drop the others."""
        self._executor.shutdown(wait=True, cancel_futures=True)
