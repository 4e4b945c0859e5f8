"""Reading the log of a fit: tasks read, check and clean a log of many Parquet files; the driver joins the shards.

    WORK_DIR/partition-3b0c.../    the log by shards of users, until the fit has succeeded

The name of the folder is a checksum of files and settings: a partition of another log is never taken for this one.
"""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

from beamtree.cluster.connection import Cluster, as_cluster, connected
from beamtree.cluster.partition import default_shards, describe_files, partition_by_user, read_in_order, read_rejects
from beamtree.config import LogSettings
from beamtree.data.clean_rows import drop_unit_weights
from beamtree.data.interactions import InteractionLog, read_log
from beamtree.data.rejects import write_rejects
from beamtree.data.tables import Source, find_files
from beamtree.training.exclusive import claimed_folder

PARTITION = "partition-"
PARQUET = (".parquet", ".pq")


def read_log_on_cluster(
    cluster: Cluster | str,
    source: Source,
    settings: LogSettings,
    *,
    work_dir: Path,
    resume: bool,
    rejects_file: str | Path | None = None,
) -> InteractionLog:
    """Read a log as `read_log` does, to the same rows in the same order and with the same report and errors.

    Two or more Parquet files are read by the tasks of the cluster; anything else is read here. work_dir: a folder that
    all nodes share. resume: take the partition that an earlier run left there, if it is of these settings and of these
    files as they are now; any other one is removed.
    """
    if not is_read_by_tasks(source):
        return read_log(source, settings, rejects_file=rejects_file)
    chosen = as_cluster(cluster)
    folder = (work_dir / f"{PARTITION}{_identity(str(source), settings)}").absolute()
    with claimed_folder(work_dir, otherwise="give another work_dir"), connected(chosen) as ray:
        forget_partitions(work_dir, but=folder.name if resume else None)
        shards = default_shards(str(source), workers=chosen.num_workers())
        return read_by_shards(ray, str(source), settings, folder=folder, num_shards=shards, rejects_file=rejects_file)


def read_by_shards(
    ray: Any, log: str, settings: LogSettings, *, folder: Path, num_shards: int, rejects_file: str | Path | None = None
) -> InteractionLog:
    """Read a log by tasks through a partition in a folder that all nodes share, or by the partition that is there."""
    partition = partition_by_user(ray, log, settings=settings, folder=folder, num_shards=num_shards)
    listed = None
    if partition.counts.rejected:
        listed = write_rejects(read_rejects(folder), path=rejects_file, source=log)
    report = partition.report(log, settings, rejects_file=listed)
    return InteractionLog(drop_unit_weights(read_in_order(folder, partition.shards)), report)


def is_read_by_tasks(source: Source) -> bool:
    """Whether a log is two or more files that carry types: those of other files are inferred from all of them."""
    if not isinstance(source, str | Path):
        return False
    files = find_files(source)
    return len(files) > 1 and all(file.suffix.lower() in PARQUET for file in files)


def forget_partitions(work_dir: Path, *, but: str | None = None) -> None:
    """Remove the partitions that readings left in a folder, but for the one of this name."""
    for folder in work_dir.glob(f"{PARTITION}*"):
        if folder.name != but:
            shutil.rmtree(folder, ignore_errors=True)


def _identity(log: str, settings: LogSettings) -> str:
    told = [describe_files(log), settings.model_dump(mode="json")]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:32]
