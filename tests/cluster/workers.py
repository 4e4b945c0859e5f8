"""Processes that learn together by torch.distributed, without Ray: forked, so that a test takes a second."""

import multiprocessing
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

SECONDS_TO_WAIT = 120.0


def _work(rank: int, workers: int, meeting: Path, results: Any, all_done: Any, task: Callable[[], Any]) -> None:
    """Stays until all are done: a worker that leaves at once hangs up on one that is still connecting."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=workers)
    try:
        results.put((rank, task()))
        all_done.wait(SECONDS_TO_WAIT)
    finally:
        dist.destroy_process_group()


def together(workers: int, task: Callable[[], Any]) -> list[Any]:
    """What the task gives in each of so many workers, in the order of their ranks."""
    context = multiprocessing.get_context("fork")
    results, all_done = context.Queue(), context.Event()
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        processes = [
            context.Process(target=_work, args=(rank, workers, Path(folder) / "meeting", results, all_done, task))
            for rank in range(workers)
        ]
        for process in processes:
            process.start()
        found = dict(results.get(timeout=SECONDS_TO_WAIT) for _ in processes)
        all_done.set()
        for process in processes:
            process.join()
    return [found[rank] for rank in range(workers)]


def alone_here(task: Callable[[], Any]) -> Any:
    """What the task gives in a worker that is alone, in this very process: where Ray runs, nothing may be forked."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            return task()
        finally:
            dist.destroy_process_group()
