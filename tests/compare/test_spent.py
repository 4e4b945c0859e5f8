"""Seconds and steps over all starts of a task."""

from collections.abc import Callable
from pathlib import Path

from beamtree.compare.spent import Spent
from beamtree.compare.task import Task
from beamtree.training.events import StepDone, Validated


def task(log: str = "log.csv") -> Task:
    return Task("dtr-u", 0, log=log, items=None, settings={}, budget_seconds=None, cutoffs=(20,))


def clock_of(*moments: float) -> Callable[[], float]:
    left = list(moments)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def step(learner: str, number: int) -> StepDone:
    return StepDone(learner, number, 10, 100, 1.0, 0.1)


def test_only_steps_that_follow_one_another_are_timed(tmp_path: Path) -> None:
    moments = clock_of(0.0, 0.0, 0.0, 1.0, 1.5, 2.0, 9.0, 10.0, 10.5)
    spent = Spent(tmp_path / "spent.json", task(), clock=moments, cpu_clock=lambda: 0.0)
    spent(step("dtr-u", 1))
    spent(step("dtr-u", 2))
    spent(Validated("dtr-u", 2, 0.1, 1.0, {"f@20": 0.1}, True))
    spent(step("dtr-u", 3))
    assert spent.learners["dtr-u"].steps == 3
    assert spent.learners["dtr-u"].timed_steps == 1, "a validation lies between the second and the third"
    assert spent.figures()["step_seconds"] == {"dtr-u": 0.5}


def test_a_second_start_counts_on_and_another_task_begins_anew(tmp_path: Path) -> None:
    file = tmp_path / "spent.json"
    first = Spent(file, task(), clock=clock_of(0.0, 3.0), cpu_clock=clock_of(0.0, 2.0))
    first.learners.clear()
    first(step("dtr-u", 1))
    first.save()
    second = Spent(file, task(), clock=clock_of(100.0, 104.0), cpu_clock=clock_of(50.0, 51.0))
    second(step("dtr-u", 2))
    figures = second.figures()
    assert (figures["fit_seconds"], figures["cpu_seconds"], figures["steps"], figures["starts"]) == (7.0, 3.0, 2, 2)
    other = Spent(file, task("another.csv"), clock=clock_of(0.0, 1.0), cpu_clock=clock_of(0.0, 1.0))
    assert (other.figures()["fit_seconds"], other.starts) == (1.0, 1)
