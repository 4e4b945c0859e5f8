"""The line in front of the search threads, with jobs that wait for the test's word."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from beamtree.serving.api_error import ApiError
from beamtree.serving.pool import Done, SearchPool
from tests.serving.server import DEADLINE, wait_until


class Gate:
    """A handler that blocks until it is opened, and remembers what it was given."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.handled: list[list[Any]] = []

    def __call__(self, jobs: Sequence[Any]) -> list[Any]:
        self.handled.append(list(jobs))
        assert self.opened.wait(DEADLINE)
        return [job * 10 for job in jobs]


MakePool = Callable[..., SearchPool]


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    made: list[SearchPool] = []

    def make(*, threads: int = 1, queue: int = 10, timeout_seconds: float = DEADLINE, together: int = 1) -> SearchPool:
        made.append(
            SearchPool("test", threads=threads, queue=queue, timeout_seconds=timeout_seconds, together=together)
        )
        wait_until(lambda: made[-1].running == 0, what="idle threads")
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), DEADLINE)

    asyncio.run(bounded())


def test_jobs_with_one_key_that_wait_are_handled_together(make_pool: MakePool) -> None:
    pool, gate = make_pool(together=4), Gate()

    async def scenario() -> None:
        first = asyncio.create_task(pool.submit(1, handle=gate, key="a"))
        await until(lambda: gate.handled == [[1]])
        keys = [(2, "a"), (3, "a"), (4, "b"), (5, "a"), (6, "a"), (7, None), (8, None)]
        others = [asyncio.create_task(pool.submit(job, handle=gate, key=key)) for job, key in keys]
        await until(lambda: pool.waiting == len(keys))
        gate.opened.set()
        done: list[Done[Any]] = await asyncio.gather(first, *others)
        assert [one.result for one in done] == [10, 20, 30, 40, 50, 60, 70, 80]
        assert all(one.waited >= 0 and one.ran >= 0 for one in done)

    run(scenario)
    assert gate.handled == [[1], [2, 3], [4], [5, 6], [7], [8]]


def test_weights_bound_what_is_handled_together(make_pool: MakePool) -> None:
    pool, gate = make_pool(together=4), Gate()

    async def scenario() -> None:
        tasks = [asyncio.create_task(pool.submit(0, handle=gate, key="a"))]
        await until(lambda: gate.handled == [[0]])
        for job, weight in ((1, 2), (2, 2), (3, 9), (4, 3), (5, 2)):
            tasks.append(asyncio.create_task(pool.submit(job, handle=gate, key="a", weight=weight)))
        await until(lambda: pool.waiting == 5)
        gate.opened.set()
        await asyncio.gather(*tasks)

    run(scenario)
    assert gate.handled == [[0], [1, 2], [3], [4], [5]]


def test_one_more_than_the_line_holds_is_refused_at_once(make_pool: MakePool) -> None:
    pool, gate = make_pool(threads=2, queue=1), Gate()

    async def scenario() -> None:
        tasks = [asyncio.create_task(pool.submit(job, handle=gate)) for job in (1, 2)]
        await until(lambda: len(gate.handled) == 2)
        pool.refuse_if_full()
        tasks.append(asyncio.create_task(pool.submit(3, handle=gate)))
        await until(lambda: pool.waiting == 1)
        with pytest.raises(ApiError) as refused:
            await pool.submit(4, handle=gate)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        with pytest.raises(ApiError):
            pool.refuse_if_full()
        gate.opened.set()
        await asyncio.gather(*tasks)

    run(scenario)
    assert sorted(job for jobs in gate.handled for job in jobs) == [1, 2, 3]


def test_a_job_whose_client_has_gone_is_never_begun(make_pool: MakePool) -> None:
    pool, gate = make_pool(), Gate()

    async def scenario() -> None:
        running = asyncio.create_task(pool.submit(1, handle=gate))
        await until(lambda: gate.handled == [[1]])
        waiting = asyncio.create_task(pool.submit(2, handle=gate))
        await until(lambda: pool.waiting == 1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert pool.waiting == 0
        gate.opened.set()
        await running

    run(scenario)
    assert gate.handled == [[1]]


def test_a_job_whose_time_is_over_is_refused_and_leaves_the_line(make_pool: MakePool) -> None:
    pool, gate = make_pool(timeout_seconds=0.05), Gate()

    async def scenario() -> None:
        running = asyncio.create_task(pool.submit(1, handle=gate))
        waiting = asyncio.create_task(pool.submit(2, handle=gate))
        for task in (running, waiting):
            with pytest.raises(ApiError, match="No answer within") as refused:
                await task
            assert (refused.value.status, refused.value.code) == (503, "timed_out")
        assert pool.waiting == 0
        assert pool.running == 1
        gate.opened.set()
        await until(lambda: pool.running == 0)
        assert (await pool.submit(3, handle=gate)).result == 30

    run(scenario)
    assert gate.handled == [[1], [3]]


def test_a_refusal_meets_only_its_own_job_and_a_failure_all_of_the_call(make_pool: MakePool) -> None:
    pool = make_pool(together=10)
    begun, opened = threading.Event(), threading.Event()

    def handle(jobs: Sequence[str]) -> list[str | ApiError]:
        begun.set()
        assert opened.wait(DEADLINE)
        if "broken" in jobs:
            raise ZeroDivisionError
        return [ApiError(422, "no", job) if job == "refused" else job for job in jobs]

    async def scenario() -> None:
        tasks = [asyncio.create_task(pool.submit("first", handle=handle, key="x"))]
        await until(begun.is_set)
        for job, key in (("refused", "a"), ("fine", "a"), ("broken", "b"), ("beside", "b"), ("last", "c")):
            tasks.append(asyncio.create_task(pool.submit(job, handle=handle, key=key)))
        await until(lambda: pool.waiting == 5)
        opened.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        names = [outcome.result if isinstance(outcome, Done) else type(outcome).__name__ for outcome in outcomes]
        assert names == ["first", "ApiError", "fine", "ZeroDivisionError", "ZeroDivisionError", "last"]

    run(scenario)


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds."""
    while not holds():
        await asyncio.sleep(0.001)
