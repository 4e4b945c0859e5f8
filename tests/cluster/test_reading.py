"""A log of many Parquet files read by tasks: the rows, their order, the report and the errors of reading it here."""

import os
import signal
from collections.abc import Mapping
from datetime import date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from beamtree import DeepTreeRetriever
from beamtree.cluster import partition, reading, shard_tasks
from beamtree.cluster.connection import Cluster
from beamtree.cluster.reading import is_read_by_tasks, read_by_shards, read_log_on_cluster
from beamtree.config import ROW_ORDER, LogSettings
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.errors import DataError
from tests.cli.beamtree_command import Command
from tests.cluster.tasks_here import TasksHere
from tests.cluster.test_learning import log_of_rings
from tests.small import assert_same_bytes

Columns = Mapping[str, list[Any]]
DAY = 86_400
WEIGHTS = {"view": 1.0, "buy": 5.0, "error": 0.0}


def write(folder: Path, *files: Columns) -> Path:
    folder.mkdir(exist_ok=True)
    for number, columns in enumerate(files):
        pl.DataFrame(columns).write_parquet(folder / f"{number}.parquet")
    return folder


def rows(**columns: list[Any]) -> Columns:
    """Six interactions of four users; other columns or values by name."""
    return {
        "user_id": [3, 1, 2, 3, 1, 4],
        "item_id": [10, 11, 12, 10, 13, 14],
        "timestamp": [5, 4, 3, 6, 1, 2],
    } | columns


LOGS: dict[str, tuple[LogSettings, list[Columns]]] = {
    "integers": (LogSettings(), [rows(), rows(timestamp=[9, 8, 7, 6, 5, 4])]),
    "text ids in one file": (
        LogSettings(),
        [rows(), rows(user_id=["3", "x", "007", "1", "2", "y"]), rows(item_id=["1", "2", "3", "4", "5", "6"])],
    ),
    "text ids in a file of which nothing is kept": (
        LogSettings(keep={"kind": ["a"]}),
        [rows(kind=["a"] * 6), rows(kind=["b"] * 6, user_id=["x"] * 6)],
    ),
    "a repeat in its own file and in another one": (
        LogSettings(),
        [rows(), rows(timestamp=[5, 5, 5, 6, 1, 1]), rows(user_id=[1] * 6, item_id=[2] * 6, timestamp=[3] * 6)],
    ),
    "row order": (
        LogSettings(columns={"timestamp": ROW_ORDER, "user_id": "who"}),
        [{"who": [2, 1, 2], "item_id": [5, 5, 5]}, {"who": [1, 1, 2], "item_id": [6, 5, 5]}],
    ),
    "weights and context": (
        LogSettings(event_weights=WEIGHTS, features={"context.device": "category", "context.hour": "number"}),
        [
            rows(
                event_type=["view", "buy", "error", "buy", "view", "view"], device=["tv", None, "tv", "pc", "pc", "x"]
            ),
            rows(event_type=["buy", "buy", "view", "view", "view", "view"], hour=[1, 2, None, 4, 5, 6]),
            rows(event_type=["view"] * 6, hour=[0.5] * 6, device=["tv"] * 6),
        ],
    ),
    "weights that are all 1": (
        LogSettings(event_weights={"view": 1.0, "buy": 3.0}),
        [rows(event_type=["view"] * 6)] * 2,
    ),
    "targets that one file has none of": (
        LogSettings(target_events=("buy",)),
        [rows(event_type=["view"] * 6), rows(event_type=["buy"] * 6)],
    ),
    "context of dates, and of integers in one file and texts in another": (
        LogSettings(features={"context.day": "number", "context.shop": "category"}),
        [
            rows(day=[date(2020, 1, day) for day in range(1, 7)], shop=[1, 2, 3, 4, 5, 6]),
            rows(day=[datetime(2020, 1, day, 12) for day in range(1, 7)], shop=["1", "b", "c", "d", "e", None]),
        ],
    ),
    "dates in milliseconds that one file alone would not tell": (
        LogSettings(keep={"since": "2020-01-02", "until": "2020-01-05"}),
        [
            rows(timestamp=[1_577_836_800_000 + DAY * 1000 * day for day in range(6)]),
            rows(timestamp=[1_577_836_800 + day for day in range(6)]),
        ],
    ),
    "times that are whole in one file alone": (LogSettings(), [rows(), rows(timestamp=[0.5, 1, 2, 3, 5, 6])]),
    "bad rows": (
        LogSettings(bad_rows="skip", keep={"min_rating": 2.0}),
        [
            rows(rating=[1, 2, 3, 4, 5, 5]),
            rows(rating=[5, 5, None, 1, 2, 2], user_id=["7", "", "8", "9", "9", "10"]),
            rows(rating=[5] * 6, timestamp=["1", "2", "soon", "4", "5", "6"]),
        ],
    ),
}


def read_by_tasks(
    log: Path, settings: LogSettings, folder: Path, *, shards: int = 3, ray: Any = None
) -> InteractionLog:
    ray = TasksHere() if ray is None else ray
    rejects = folder.parent / "rejects.csv"
    return read_by_shards(ray, str(log), settings, folder=folder, num_shards=shards, rejects_file=rejects)


def assert_same_log(left: InteractionLog, right: InteractionLog) -> None:
    """Rows, their order, names and types of the columns, and the report."""
    assert_frame_equal(left.frame, right.frame, check_exact=True)
    assert left.report == right.report


@pytest.mark.parametrize("kind", LOGS)
def test_tasks_read_what_one_process_reads(kind: str, tmp_path: Path) -> None:
    settings, files = LOGS[kind]
    log = write(tmp_path / "log", *files)
    by_tasks = read_by_tasks(log, settings, tmp_path / "shards")
    listed = (tmp_path / "rejects.csv").read_bytes() if by_tasks.report.rejects_file else None
    here = read_log(str(log), settings, rejects_file=tmp_path / "rejects.csv")
    assert_same_log(by_tasks, here)
    assert listed is None or listed == (tmp_path / "rejects.csv").read_bytes()


ERRORS: dict[str, tuple[LogSettings, list[Columns]]] = {
    "a column is missing": (LogSettings(), [rows(), {"user": [1], "item_id": [2], "timestamp": [3]}]),
    "a column of events is missing": (LogSettings(keep={"kind": ["a"]}), [rows(kind=["a"] * 6), rows()]),
    "bad rows in two files": (
        LogSettings(),
        [rows(), rows(user_id=[1, None, 1, None, 1, 1]), rows(item_id=[None] * 6)],
    ),
    "all rows are bad": (LogSettings(bad_rows="skip"), [rows(user_id=[None] * 6)] * 2),
    "no rows": (LogSettings(), [rows(user_id=[], item_id=[], timestamp=[])] * 2),
    "none within the bounds": (LogSettings(keep={"since": 100.0}), [rows()] * 2),
    "a date for times that are none": (LogSettings(keep={"since": "2020-01-01"}), [rows(), rows()]),
    "a type of event without a weight": (
        LogSettings(event_weights=WEIGHTS, keep={"since": 2.0}),
        [rows(event_type=["view", "cart", "cart", "like", "like", "view"]), rows(event_type=["view"] * 6)],
    ),
    "no row of a target type": (LogSettings(target_events=("buy",)), [rows(event_type=["view"] * 6)] * 2),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_errors_are_those_of_one_process(kind: str, tmp_path: Path) -> None:
    settings, files = ERRORS[kind]
    log = write(tmp_path / "log", *files)
    with pytest.raises(DataError) as here:
        read_log(str(log), settings, rejects_file=tmp_path / "rejects.csv")
    (tmp_path / "rejects.csv").unlink(missing_ok=True)
    with pytest.raises(type(here.value)) as there:
        read_by_tasks(log, settings, tmp_path / "shards")
    assert str(there.value) == str(here.value)
    assert (tmp_path / "rejects.csv").exists() == (kind == "all rows are bad")


def test_a_reading_that_was_killed_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With another number of shards: files that the killed one left must not be taken for those of this one."""
    log = write(tmp_path / "log", rows(), rows(timestamp=[9, 8, 7, 6, 5, 4]))

    class Killed(BaseException):
        pass

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(partition, "clean_shard", die)
        with pytest.raises(Killed):
            read_by_tasks(log, LogSettings(), tmp_path / "shards", shards=5)
    assert list((tmp_path / "shards").glob("shard-*/part-*"))
    assert_same_log(read_by_tasks(log, LogSettings(), tmp_path / "shards"), read_log(str(log), LogSettings()))


def split_unless_killed(path: Path, number: int, *rest: Any) -> shard_tasks.FileShare:
    """As `split_file`; the first task that reads the second file dies when it has read it."""
    made = shard_tasks.split_file(path, number, *rest)
    tombstone = path.parent.parent / "killed"
    if number == 1 and not tombstone.exists():
        tombstone.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return made


def test_a_killed_task_is_done_again(two_nodes: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "split_file", split_unless_killed)
    settings, files = LOGS["weights and context"]
    log = write(tmp_path / "log", *files)
    read = read_log_on_cluster(two_nodes, log, settings, work_dir=tmp_path / "work", resume=False)
    assert (tmp_path / "killed").exists()
    assert_same_log(read, read_log(log, settings))


def test_a_partition_is_found_again_unless_something_changed(two_nodes: Cluster, tmp_path: Path) -> None:
    log, work = write(tmp_path / "log", rows(), rows(timestamp=[9, 8, 7, 6, 5, 4])), tmp_path / "work"

    def read(settings: LogSettings, *, resume: bool = True) -> tuple[str, int]:
        """The partition that was used, and when it was made; there is no other one."""
        found = read_log_on_cluster(two_nodes, str(log), settings, work_dir=work, resume=resume)
        assert_same_log(found, read_log(str(log), settings))
        (made,) = work.glob("partition-*/partition.json")
        return made.parent.name, made.stat().st_mtime_ns

    first = read(LogSettings())
    assert read(LogSettings()) == first
    again = read(LogSettings(), resume=False)
    assert again != first
    assert read(LogSettings(keep={"since": 5.0}))[0] != first[0]
    write(log, rows(item_id=[20, 21, 22, 23, 24, 25]))
    assert read(LogSettings())[0] != first[0]


def test_an_error_of_a_task_names_the_file_that_comes_first(two_nodes: Cluster, tmp_path: Path) -> None:
    log = write(tmp_path / "log", rows(), rows(user_id=[1, None, 1, None, 1, 1]), {"user": [1]})
    with pytest.raises(DataError) as here:
        read_log(str(log), LogSettings())
    with pytest.raises(DataError) as there:
        read_log_on_cluster(two_nodes, str(log), LogSettings(), work_dir=tmp_path / "work", resume=False)
    assert str(there.value) == str(here.value)
    assert "1.parquet, row 2" in str(there.value)


@pytest.mark.parametrize("name", ["one.parquet", "some.csv", "mixed"])
def test_other_logs_are_read_here(name: str, tmp_path: Path) -> None:
    log, path = pl.DataFrame(rows()), tmp_path / name
    match name:
        case "one.parquet":
            log.write_parquet(path)
        case "some.csv":
            log.write_csv(path)
        case _:
            write(path, rows())
            log.write_csv(path / "1.csv")
    assert not is_read_by_tasks(path)
    nowhere = Cluster("10.0.0.1:1")
    assert_same_log(
        read_log_on_cluster(nowhere, path, LogSettings(), work_dir=tmp_path / "work", resume=False),
        read_log(path, LogSettings()),
    )
    assert not is_read_by_tasks(log)


@pytest.fixture(scope="module")
def rings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In seven files that all have rows of every user."""
    folder, log = tmp_path_factory.mktemp("rings"), log_of_rings().sample(fraction=1.0, shuffle=True, seed=3)
    for part in range(7):
        log.filter(pl.col("timestamp") % 7 == part).write_parquet(folder / f"{part}.parquet")
    return folder


def test_a_fit_is_that_of_a_log_that_was_read_here(two_nodes: Cluster, rings: Path, tmp_path: Path) -> None:
    """To the byte; and it leaves nothing of what was read."""
    work = tmp_path / "work"
    here, there = (
        DeepTreeRetriever(preset="instant").fit(log, cluster=two_nodes, work_dir=work, progress=False)
        for log in (read_log(rings, LogSettings()), str(rings))
    )
    left, right = here.recommender.artefact, there.recommender.artefact
    assert left.data_fingerprint == right.data_fingerprint
    assert left.metrics == right.metrics
    assert_same_bytes(dict(left.weights), dict(right.weights))
    assert not list(work.glob("partition-*"))


def test_the_command_reads_by_tasks(
    two_nodes: Cluster, rings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command(monkeypatch, capsys)
    seen: list[Path] = []

    def noted(*given: Any, folder: Path, **named: Any) -> partition.Partition:
        seen.append(folder)
        return partition.partition_by_user(*given, folder=folder, **named)

    monkeypatch.setattr(reading, "partition_by_user", noted)
    on_cluster = ["--cluster", two_nodes.address, "--workers", "2"]
    done = command("fit", str(rings), "--preset", "instant", "--out", str(tmp_path / "model"), *on_cluster)
    assert done.code == 0, done.err
    assert "3,000 rows read from 7 files" in done.message
    assert [folder.parent for folder in seen] == [tmp_path / "model.checkpoint"]
    assert not (tmp_path / "model.checkpoint").exists()
    alone = DeepTreeRetriever(preset="instant").fit(rings, progress=False).recommender.artefact
    there = DeepTreeRetriever.load(tmp_path / "model").recommender.artefact
    assert there.data_fingerprint == alone.data_fingerprint
