"""Processes that learn together by torch.distributed, without Ray."""

import multiprocessing
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist


class Order(NamedTuple):
    """What a worker is to do, among how many, and the file by which they find each other."""

    rank: int
    workers: int
    meeting: Path
    task: Callable[..., Any]
    given: tuple[Any, ...]


class Answer(NamedTuple):
    """What a task gave, or the traceback of its error."""

    value: Any
    error: str | None = None


@dataclass(frozen=True)
class Workers:
    """Processes that wait for something to do together."""

    connections: list[Connection]

    def together(self, workers: int, task: Callable[..., Any], *given: Any) -> list[Any]:
        """What a function of a module gives in each of so many workers, in the order of their ranks.

        RuntimeError with the tracebacks where it failed.
        """
        chosen = self.connections[:workers]
        with tempfile.TemporaryDirectory() as folder:
            for rank, connection in enumerate(chosen):
                connection.send(Order(rank, workers, Path(folder) / "meeting", task, given))
            answers: list[Answer] = [connection.recv() for connection in chosen]
            for connection in chosen:
                connection.send("all are done")
        failures = [answer.error for answer in answers if answer.error is not None]
        if failures:
            raise RuntimeError("\n".join(failures))
        return [answer.value for answer in answers]


@contextmanager
def waiting_workers(most: int) -> Iterator[Workers]:
    """So many processes, for as long as this lasts. They are new ones: this one may have threads, of Ray or of the
    kernels, whose locks a fork of it would hold for ever."""
    context = multiprocessing.get_context("spawn")
    processes, connections = [], []
    for _ in range(most):
        here, there = context.Pipe()
        processes.append(context.Process(target=_work, args=(there,), daemon=True))
        processes[-1].start()
        there.close()
        connections.append(here)
    try:
        yield Workers(connections)
    finally:
        for process in processes:
            process.kill()
            process.join()


def alone_here(task: Callable[[], Any]) -> Any:
    """What the task gives in a worker that is alone, in this very process."""
    with tempfile.TemporaryDirectory() as folder:
        dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=0, world_size=1)
        try:
            return task()
        finally:
            dist.destroy_process_group()


def _work(parent: Connection) -> None:
    """One order after another, until the parent is gone. A worker stays in the group until all of them are done: one
    that left at once would hang up on another that is still connecting."""
    torch.set_num_threads(1)
    while True:
        try:
            order: Order = parent.recv()
        except EOFError:
            return
        dist.init_process_group(
            "gloo", init_method=f"file://{order.meeting}", rank=order.rank, world_size=order.workers
        )
        try:
            parent.send(Answer(order.task(*order.given)))
        except Exception:
            parent.send(Answer(None, traceback.format_exc()))
        parent.recv()
        dist.destroy_process_group()
