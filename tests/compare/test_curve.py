"""Curves that grow line by line, and what is read from them."""

from pathlib import Path

from beamtree.baselines.protocol import CurvePoint
from beamtree.compare.curve import CurveFile, curve_path, read_curves
from beamtree.compare.task import Task


def task(*, seed: int = 0, log: str = "log.csv") -> Task:
    return Task("otm", seed, log=log, items=None, settings={}, budget_seconds=None, cutoffs=(20,))


def curve_file(folder: Path, owner: Task) -> CurveFile:
    return CurveFile(curve_path(folder, owner), owner, seconds=lambda: 1.5)


def point(instances: int, value: float, *, learner: str = "otm", number: int = 0, rate: float = 0.1) -> CurvePoint:
    return CurvePoint(learner, number, rate, instances, {"f@20": value, "recall@20": 0.5})


def ended(instances: int, value: float, *, learner: str = "otm", number: int = 0, rate: float = 0.1) -> CurvePoint:
    return CurvePoint(learner, number, rate, instances, {"f@20": value}, is_round=True)


def test_a_point_is_written_once_and_what_a_crash_cut_off_is_dropped(tmp_path: Path) -> None:
    first = curve_file(tmp_path, task())
    path = curve_path(tmp_path, task())
    assert not path.exists(), "nothing learned yet"
    first.record(point(100, 0.1))
    whole = path.read_text()
    path.write_text(whole + '{"learner": "otm", "rou')
    again = curve_file(tmp_path, task())
    assert path.read_text() == whole
    again.record(point(100, 0.1))
    assert path.read_text() == whole, "told again after a crash"
    again.record(ended(100, 0.1))
    again.record(point(200, 0.2))
    assert len(path.read_text().splitlines()) == 4
    assert again.instances == 100, "of finished rounds"


def test_the_curve_of_other_settings_is_begun_anew(tmp_path: Path) -> None:
    curve_file(tmp_path, task()).record(point(100, 0.1))
    other = curve_file(tmp_path, task(log="another.csv"))
    assert not read_curves(tmp_path)
    other.record(point(50, 0.3))
    (found,) = read_curves(tmp_path)
    assert [one["instances"] for one in found.points] == [50]


def test_learners_follow_one_another_and_dropped_learning_rates_are_left_out(tmp_path: Path) -> None:
    growing = curve_file(tmp_path, task(seed=3))
    for one in (
        point(100, 0.1, learner="otm-start", rate=0.1),
        point(100, 0.2, learner="otm-start", rate=0.01),
        ended(100, 0.2, learner="otm-start", rate=0.01),
        point(200, 0.25, learner="otm-start", number=1, rate=0.01),
        ended(200, 0.25, learner="otm-start", number=1, rate=0.01),
        point(100, 0.3, rate=0.1),
        point(100, 0.1, rate=0.01),
    ):
        growing.record(one)
    (found,) = read_curves(tmp_path)
    assert (found.label, found.seed) == ("otm", 3)
    assert [(one["instances"], one["f@20"]) for one in found.points] == [(100, 0.2), (200, 0.25), (300, 0.3)]
    assert not found.rounds, "the last learner has not finished one"
    growing.record(ended(100, 0.3))
    (found,) = read_curves(tmp_path)
    assert [(one["round"], one["f@20"]) for one in found.rounds] == [(0, 0.3)]
