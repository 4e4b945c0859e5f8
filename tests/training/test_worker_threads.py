"""Threads with cores of their own."""

import threading

import pytest
import torch

from beamtree.training.worker_threads import WorkerThreads


@pytest.mark.parametrize(("cores", "each"), [(1, 1), (2, 1), (4, 2)])
def test_they_share_the_cores_and_leave_everyone_else_as_before(cores: int, each: int) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(cores)
    try:
        together = threading.Barrier(2)

        def ask(_number: int) -> tuple[int, int]:
            together.wait(timeout=30)
            return threading.get_ident(), torch.get_num_threads()

        (first, of_first), (second, of_second) = WorkerThreads(2).map(ask, [0, 1])
        assert len({first, second, threading.get_ident()}) == 3
        assert (of_first, of_second, torch.get_num_threads()) == (each, each, cores)
        with_others = WorkerThreads(1).map(lambda _: torch.get_num_threads(), [0])
        assert with_others == [cores], "what they set is theirs alone"
    finally:
        torch.set_num_threads(before)


def test_results_come_in_order_and_failures_are_raised() -> None:
    threads = WorkerThreads(2)
    assert threads.map(lambda number: 10 // number, [5, 2, 1]) == [2, 5, 10]
    with pytest.raises(ZeroDivisionError):
        threads.map(lambda number: 10 // number, [5, 0])
