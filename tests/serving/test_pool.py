"""The line in front of the search threads, with jobs that wait for the test's word."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import pytest

from beamtree.serving.api_error import ApiError
from beamtree.serving.limits import REFUSAL_SECONDS, REFUSALS_A_SECOND
from beamtree.serving.pool import Done, SearchPool
from tests.serving.server import DEADLINE, wait_until


class Gate:
    """A handler that blocks until it is opened, and remembers what it was given."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.handled: list[list[Any]] = []

    def __call__(self, calls: Sequence[Sequence[int]]) -> list[list[int]]:
        self.handled.append([part for parts in calls for part in parts])
        assert self.opened.wait(DEADLINE)
        return [[part * 10 for part in parts] for parts in calls]


async def submit(
    pool: SearchPool, *parts: Any, handle: Callable[..., Any], key: Any = None, work: float = 1.0
) -> Done[list[Any]]:
    """A call of parts that cost the same, on a connection of its own."""
    return await pool.submit(parts, handle=handle, works=[work] * len(parts), connection=object(), key=key)


MakePool = Callable[..., SearchPool]


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    made: list[SearchPool] = []

    def make(*, threads: int = 1, queue: int = 10, timeout_seconds: float = DEADLINE, **bounds: Any) -> SearchPool:
        made.append(SearchPool("test", threads=threads, queue=queue, timeout_seconds=timeout_seconds, **bounds))
        wait_until(lambda: made[-1].running == 0, what="idle threads")
        return made[-1]

    yield make
    for pool in made:
        pool.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), DEADLINE)

    asyncio.run(bounded())


def test_parts_with_one_key_that_wait_are_handled_together(make_pool: MakePool) -> None:
    pool, gate = make_pool(together=4), Gate()

    async def scenario() -> None:
        first = asyncio.create_task(submit(pool, 1, handle=gate, key="a"))
        await until(lambda: gate.handled == [[1]])
        keys = [(2, "a"), (3, "a"), (4, "b"), (5, "a"), (6, "a"), (7, None), (8, None)]
        others = [asyncio.create_task(submit(pool, part, handle=gate, key=key)) for part, key in keys]
        await until(lambda: pool.waiting == len(keys))
        assert pool.waiting_work == len(keys)
        gate.opened.set()
        done: list[Done[Any]] = await asyncio.gather(first, *others)
        assert [one.result for one in done] == [[10], [20], [30], [40], [50], [60], [70], [80]]
        assert all(one.waited >= 0 and one.ran >= 0 for one in done)

    run(scenario)
    assert gate.handled == [[1], [2, 3], [4], [5, 6], [7], [8]]


def test_a_call_with_much_work_is_handled_in_slices_in_turn_with_others(make_pool: MakePool) -> None:
    pool, gate = make_pool(together=4, queue=100), Gate()

    async def scenario() -> None:
        tasks = [asyncio.create_task(submit(pool, 0, handle=gate, key="a"))]
        await until(lambda: gate.handled == [[0]])
        for parts, work in (((10, 11, 12), 4.0), ((20, 21, 22), 4.0), ((1, 2), 1.0)):
            tasks.append(asyncio.create_task(submit(pool, *parts, handle=gate, key="a", work=work)))
        await until(lambda: pool.waiting == 3)
        gate.opened.set()
        done: list[Done[Any]] = await asyncio.gather(*tasks)
        assert [one.result for one in done] == [[0], [100, 110, 120], [200, 210, 220], [10, 20]]

    run(scenario)
    assert gate.handled == [[0], [1, 2], [10], [20], [11], [21], [12], [22]]


def test_threads_together_do_no_more_than_a_bounded_work_at_once(make_pool: MakePool) -> None:
    pool, gates = make_pool(threads=3, together=2, slices_at_once=3), [Gate() for _ in range(4)]

    async def scenario() -> None:
        tasks = [asyncio.create_task(submit(pool, 1, handle=gates[0], work=9.0))]
        await until(lambda: gates[0].handled == [[1]])
        for gate, work in ((gates[1], 2.0), (gates[2], 4.0), (gates[3], 1.0)):
            tasks.append(asyncio.create_task(submit(pool, 1, handle=gate, work=work)))
        await until(lambda: pool.waiting == 3)
        assert pool.running == 1
        gates[0].opened.set()
        await until(lambda: pool.running == 2)
        assert [len(gate.handled) for gate in gates] == [1, 1, 0, 1]
        gates[3].opened.set()
        await until(lambda: len(gates[2].handled) == 1)
        for gate in gates:
            gate.opened.set()
        await asyncio.gather(*tasks)

    run(scenario)


def test_a_part_with_much_work_leaves_the_other_threads_free_unless_they_share_something(make_pool: MakePool) -> None:
    pool, gate = make_pool(threads=2), Gate()

    async def scenario() -> None:
        heavy = asyncio.create_task(submit(pool, 1, handle=gate, work=50.0))
        await until(lambda: gate.handled == [[1]])
        assert (await pool.run(lambda: "looked up")).result == "looked up"
        gate.opened.set()
        await heavy

    run(scenario)


def test_more_work_than_the_line_holds_is_refused_at_once(make_pool: MakePool) -> None:
    pool, gate = make_pool(threads=2, queue=1), Gate()

    async def scenario() -> None:
        tasks = [asyncio.create_task(submit(pool, part, handle=gate)) for part in (1, 2)]
        await until(lambda: len(gate.handled) == 2)
        await pool.refuse_if_full()
        tasks.append(asyncio.create_task(submit(pool, 3, handle=gate)))
        await until(lambda: pool.waiting == 1)
        with pytest.raises(ApiError) as refused:
            await submit(pool, 4, handle=gate)
        assert (refused.value.status, refused.value.headers) == (503, {"Retry-After": "1"})
        with pytest.raises(ApiError):
            await pool.refuse_if_full()
        gate.opened.set()
        await asyncio.gather(*tasks)

    run(scenario)
    assert sorted(part for parts in gate.handled for part in parts) == [1, 2, 3]


def test_a_line_full_of_heavy_calls_refuses_the_next_heavy_one_and_takes_light_ones(make_pool: MakePool) -> None:
    pool, gate = make_pool(queue=8), Gate()

    async def scenario() -> None:
        tasks = [asyncio.create_task(submit(pool, 1, handle=gate))]
        await until(lambda: gate.handled == [[1]])
        tasks.append(asyncio.create_task(submit(pool, 2, 3, handle=gate, work=50.0)))
        await until(lambda: pool.waiting == 1)
        with pytest.raises(ApiError, match=r"worth 100 searches; this call is worth 50"):
            await submit(pool, 4, handle=gate, work=50.0)
        tasks.append(asyncio.create_task(submit(pool, 5, handle=gate)))
        await until(lambda: pool.waiting == 2)
        gate.opened.set()
        await asyncio.gather(*tasks)

    run(scenario)
    assert gate.handled == [[1], [5], [2], [3]]


def test_a_call_whose_client_has_gone_is_never_begun_or_continued(make_pool: MakePool) -> None:
    pool, gate = make_pool(), Gate()

    async def scenario() -> None:
        running = asyncio.create_task(submit(pool, 1, 2, handle=gate))
        await until(lambda: gate.handled == [[1]])
        waiting = asyncio.create_task(submit(pool, 3, handle=gate))
        await until(lambda: pool.waiting == 2)
        for task in (waiting, running):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (pool.waiting, pool.waiting_work) == (0, 0.0)
        gate.opened.set()
        await until(lambda: pool.running == 0)

    run(scenario)
    assert gate.handled == [[1]]


def test_a_call_whose_time_is_over_is_refused_and_leaves_the_line(make_pool: MakePool) -> None:
    pool, gate = make_pool(timeout_seconds=0.05), Gate()

    async def scenario() -> None:
        running = asyncio.create_task(submit(pool, 1, 11, handle=gate))
        waiting = asyncio.create_task(submit(pool, 2, handle=gate))
        for task in (running, waiting):
            with pytest.raises(ApiError, match="No answer within") as refused:
                await task
            assert (refused.value.status, refused.value.code) == (503, "timed_out")
        assert pool.waiting == 0
        assert pool.running == 1
        gate.opened.set()
        await until(lambda: pool.running == 0)
        assert (await submit(pool, 3, handle=gate)).result == [30]

    run(scenario)
    assert gate.handled == [[1], [3]]


class Panic(BaseException):
    """What the data-frame library raises when it panics is no Exception either."""


def test_whatever_is_raised_meets_only_its_own_call(make_pool: MakePool) -> None:
    pool = make_pool(together=10)
    begun, opened = threading.Event(), threading.Event()
    failures = {"refused": ApiError(422, "no", "refused"), "broken": ZeroDivisionError(), "panics": Panic()}

    def handle(calls: Sequence[Sequence[str]]) -> list[Sequence[str] | BaseException]:
        begun.set()
        assert opened.wait(DEADLINE)
        return [failures.get(parts[0], parts) for parts in calls]

    async def scenario() -> None:
        tasks = [asyncio.create_task(submit(pool, "first", handle=handle, key="x"))]
        await until(begun.is_set)
        for part in ("refused", "fine", "broken", "panics", "last"):
            tasks.append(asyncio.create_task(submit(pool, part, handle=handle, key="a")))
        await until(lambda: pool.waiting == 5)
        opened.set()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        names = [outcome.result if isinstance(outcome, Done) else type(outcome).__name__ for outcome in outcomes]
        assert names == [["first"], "ApiError", ["fine"], "ZeroDivisionError", "RuntimeError", ["last"]]
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.run(lambda: next(iter(())))
        assert (await pool.run(lambda: 7)).result == 7

    run(scenario)


def test_a_call_of_which_a_part_fails_is_not_continued(make_pool: MakePool) -> None:
    pool, has_failed = make_pool(), threading.Event()
    handled: list[int] = []

    def handle(calls: Sequence[Sequence[int]]) -> list[Sequence[int] | BaseException]:
        [[part]] = calls
        handled.append(part)
        if part == 1:
            return [ZeroDivisionError()]
        assert has_failed.wait(DEADLINE)
        return [[part]]

    async def scenario() -> None:
        with pytest.raises(ZeroDivisionError):
            await submit(pool, 1, 2, 3, 4, handle=handle)
        has_failed.set()
        await until(lambda: pool.running == 0)
        assert pool.waiting == 0

    run(scenario)
    assert handled in ([1], [1, 2])


def test_slices_are_as_large_as_fits_into_a_time(make_pool: MakePool) -> None:
    now, handled = [0.0], []

    def handle(calls: Sequence[Sequence[float]]) -> list[Sequence[float]]:
        handled.append(sum(map(len, calls)))
        now[0] += sum(seconds for parts in calls for seconds in parts)
        return list(calls)

    pool = make_pool(queue=1000, together=8, slice_seconds=0.5, clock=lambda: now[0])

    async def scenario() -> None:
        for seconds, count in ((0.125, 9), (1.0, 40), (0.001, 1000)):
            await submit(pool, *[seconds] * count, handle=handle, key="a")

    run(scenario)
    assert handled[:3] == [1, 4, 4], "one to learn how long a part takes, then four within half a second"
    assert handled[3:8] == [4, 2, 2, 1, 1], "parts that take longer make slices smaller"
    assert handled[-2] == max(handled) == 8, "and short ones larger, up to what was said"


def test_no_more_waits_than_can_be_done_in_time(make_pool: MakePool) -> None:
    now, gate = [0.0], Gate()

    def handle(calls: Sequence[Sequence[int]]) -> list[Sequence[int]]:
        now[0] += 2.0
        return list(calls)

    pool = make_pool(queue=100, timeout_seconds=DEADLINE, clock=lambda: now[0])

    async def scenario() -> None:
        await submit(pool, 1, handle=handle)
        tasks = [asyncio.create_task(submit(pool, 2, handle=gate))]
        await until(lambda: gate.handled == [[2]])
        in_time = int(DEADLINE / 2 / 2.0)
        tasks += [asyncio.create_task(submit(pool, part, handle=gate)) for part in range(in_time)]
        await until(lambda: pool.waiting == in_time)
        with pytest.raises(ApiError):
            await submit(pool, 3, handle=gate)
        gate.opened.set()
        await asyncio.gather(*tasks)

    run(scenario)


def test_the_more_are_refused_the_longer_each_is_held(make_pool: MakePool) -> None:
    gate, pauses, waiting = Gate(), [], asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await waiting.wait()

    pool = make_pool(queue=0, pause=pause)

    async def scenario() -> None:
        running = asyncio.create_task(submit(pool, 1, handle=gate))
        await until(lambda: gate.handled == [[1]])
        refused: list[asyncio.Task[Any]] = [
            *(asyncio.create_task(submit(pool, 2, handle=gate)) for _ in range(200)),
            *(asyncio.create_task(pool.refuse_if_full()) for _ in range(2)),
        ]
        await until(lambda: len(pauses) == 202)
        waiting.set()
        assert {type(one) for one in await asyncio.gather(*refused, return_exceptions=True)} == {ApiError}
        with pytest.raises(ApiError):
            await pool.refuse_if_full()
        gate.opened.set()
        await running

    run(scenario)
    assert pauses[:3] == [0.0, 1 / REFUSALS_A_SECOND, 2 / REFUSALS_A_SECOND]
    assert pauses[200:] == [REFUSAL_SECONDS, REFUSAL_SECONDS, 0.0]


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until something holds."""
    while not holds():
        await asyncio.sleep(0.001)
