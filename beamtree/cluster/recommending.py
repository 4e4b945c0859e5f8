"""Recommending for everybody: one model per actor, one file per shard of users.

    OUT/manifest.json              what the files are of: another log, model or wish is refused
    OUT/part-00012.parquet         user_id, item_id, score, rank for the users of shard 12, written in one step
    OUT/.partition/                the log by shards of users, until everything is finished

A shard whose file is there is finished, whoever wrote it. Ray starts an actor that died again, and its shard with it.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl

from beamtree.artefact import load_artefact
from beamtree.cluster.connection import Cluster, connected
from beamtree.cluster.partition import (
    Partition,
    default_shards,
    describe_files,
    partition_by_user,
    read_shard,
    read_shard_lists,
    read_shard_users,
)
from beamtree.config import LogSettings
from beamtree.data.columns import USER_ID
from beamtree.data.raw_ids import id_list
from beamtree.errors import BeamtreeError, ClusterError, InputError
from beamtree.retrieval.allow_lists import by_user
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import Allow, RecommendOptions
from beamtree.retrieval.tables import recommend_users
from beamtree.storage import MANIFEST, file_sha256, replace_file, replace_text

KIND = "beamtree recommendations"
PARTITION = ".partition"
MAX_RETRIES = 5
"""So often a shard is tried again after its actor died; more often, and it is the shard that kills them."""

SECONDS_UNREACHABLE = 300.0
SECONDS_BETWEEN_CALLS = 1.0


@dataclass(frozen=True)
class ShardDone:
    """A finished shard: its users, and how many of them got popular items for want of a history."""

    shard: int
    users: int
    cold: int


@dataclass(frozen=True)
class Everybody:
    """What was written: shards in all, those that were there before, and users and cold ones of those made now."""

    shards: int
    found: int
    users: int
    cold: int


@dataclass(frozen=True)
class Job:
    """What to recommend to whom. model, log, allow_lists, user_table: paths that every node sees.

    context: in which everybody asks, by column.
    """

    model: Path
    log: str
    settings: LogSettings
    options: RecommendOptions
    allow_lists: str | None = None
    user_table: str | None = None
    context: Mapping[str, Any] = field(default_factory=dict)

    def identity(self) -> str:
        """Differs where the model, a file of the log or of the lists, or what is asked differs."""
        sources = [source for source in (self.log, self.allow_lists, self.user_table) if source is not None]
        asked = {**_wishes(self.options), "context": dict(self.context)}
        told = [
            file_sha256(self.model / MANIFEST),
            describe_files(*sources),
            self.settings.model_dump(mode="json"),
            asked,
        ]
        return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()


def recommend_everybody(
    cluster: Cluster,
    job: Job,
    out: Path,
    *,
    num_shards: int | None = None,
    on_shard: Callable[[ShardDone | None, int], None] = lambda _done, _total: None,
) -> Everybody:
    """Recommend for all users of a log into a folder that all nodes share; what is finished there is left as it is.

    num_shards: files to write; by default by the size of the log. on_shard: called with each finished shard, and
    before the first one with None, and with the number of shards that are left to make. InputError where the folder
    holds something else; ClusterError where a shard kills its actors.
    """
    artefact = load_artefact(job.model)  # what is wrong with the model is said here, not by every actor
    if job.user_table is not None and not artefact.request_features.user:
        raise InputError("The model was fitted without a user table, so it reads none. Leave it out, or fit with it.")
    out = out.absolute()
    with connected(cluster) as ray:
        workers = cluster.num_workers()
        shards = _claim(out, job, num_shards=num_shards or default_shards(job.log, workers=workers))
        if _is_finished(out):
            return Everybody(len(_finished(out)), len(_finished(out)), users=0, cold=0)
        partition = partition_by_user(
            ray,
            job.log,
            settings=job.settings,
            folder=out / PARTITION,
            num_shards=shards,
            allow_lists=job.allow_lists,
            user_table=job.user_table,
        )
        partition.report(job.log, job.settings)  # refuses a log without rows
        there = _finished(out)
        missing = [shard for shard in partition.shards if shard not in there]
        on_shard(None, len(missing))
        actors = [_actor(ray, cluster, job, partition, out) for _ in range(min(workers, len(missing)))]
        try:
            made = _recommend_shards(ray, missing, actors, on_shard=lambda done: on_shard(done, len(missing)))
        finally:
            for actor in actors:
                ray.kill(actor)
    _finish(out)
    users, cold = sum(done.users for done in made), sum(done.cold for done in made)
    return Everybody(len(partition.shards), len(partition.shards) - len(made), users, cold)


class ShardRecommender:
    """An actor with the model in memory, which makes one shard after another."""

    def __init__(self, job: Job, partition: Partition, out: Path, threads: int) -> None:
        from beamtree import native

        if native.is_available():
            native.set_threads(threads)
        self._recommender = Recommender.load(job.model)
        self._job, self._partition, self._out = job, partition, out

    def recommend(self, shard: int) -> ShardDone:
        """Write the recommendations for the users of a shard in one step."""
        folder = self._out / PARTITION
        lists = read_shard_lists(folder, shard, self._partition)
        tables = recommend_users(
            self._recommender,
            read_shard(folder, shard),
            users=None,
            options=self._job.options,
            allow_lists=None if lists is None else by_user(lists),
            user_table=read_shard_users(folder, shard),
            context=self._job.context,
        )
        made = pl.concat(list(tables))
        replace_file(part_file(self._out, shard), made.write_parquet)
        cold = made.filter((pl.col("rank") == 1) & pl.col("score").is_null())[USER_ID]
        return ShardDone(shard, users=len(tables.users), cold=len(cold))


def part_file(out: Path, shard: int) -> Path:
    """The file of a shard."""
    return out / f"part-{shard:05d}.parquet"


def _actor(ray: Any, cluster: Cluster, job: Job, partition: Partition, out: Path) -> Any:
    kind = ray.remote(num_cpus=cluster.threads, max_restarts=-1, max_task_retries=MAX_RETRIES)(ShardRecommender)
    return kind.remote(job, partition, out, cluster.threads)


def _recommend_shards(
    ray: Any, shards: Sequence[int], actors: Sequence[Any], *, on_shard: Callable[[ShardDone], None]
) -> list[ShardDone]:
    """Every actor makes a shard at a time, and has the next one already, so that it never waits for the driver.

    The shard of an actor that cannot be reached, because its node went down, waits until Ray has started the actor on
    another one: to make a shard twice does no harm.
    """
    waiting, made = list(reversed(shards)), []
    at_work: dict[Any, tuple[Any, int]] = {}
    unreachable_since: dict[Any, float] = {}

    def give(actor: Any, shard: int) -> None:
        at_work[actor.recommend.remote(shard)] = actor, shard

    for actor in [*actors, *actors][: len(waiting)]:
        give(actor, waiting.pop())
    while at_work:
        (ready,), _ = ray.wait(list(at_work), num_returns=1)
        actor, shard = at_work.pop(ready)
        try:
            done: ShardDone = ray.get(ready)
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise cause if isinstance(cause, BeamtreeError) else error from None
        except ray.exceptions.ActorUnavailableError as error:
            since = unreachable_since.setdefault(actor, time.monotonic())
            if time.monotonic() - since > SECONDS_UNREACHABLE:
                raise ClusterError(
                    f"An actor could not be reached for {SECONDS_UNREACHABLE:.0f} seconds "
                    f"({str(error).splitlines()[0]}). Look at the nodes and run this again: what is finished is kept."
                ) from error
            time.sleep(SECONDS_BETWEEN_CALLS)
            give(actor, shard)
            continue
        except ray.exceptions.RayActorError as error:
            raise ClusterError(
                f"A shard could not be made: its actor died {MAX_RETRIES + 1} times ({str(error).splitlines()[0]}). "
                "Give the workers more memory, or make smaller shards; what is finished is kept."
            ) from error
        unreachable_since.pop(actor, None)
        made.append(done)
        on_shard(done)
        if waiting:
            give(actor, waiting.pop())
    return made


def _claim(out: Path, job: Job, *, num_shards: int) -> int:
    """Make the folder one of this job, or see that it is; the number of its shards, which is that of its first run."""
    path, identity = out / MANIFEST, job.identity()
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
        if kept.get("kind") != KIND or kept.get("identity") != identity:
            raise InputError(
                f"{out} holds something else than recommendations of this model for this log with these options. "
                "Give another folder with --out, or remove this one."
            )
        return int(kept["shards"])
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"{out} holds other files. With --cluster, --out takes a folder of its own.")
    out.mkdir(parents=True, exist_ok=True)
    _write_manifest(out, {"kind": KIND, "identity": identity, "shards": num_shards, "is_finished": False})
    return num_shards


def _is_finished(out: Path) -> bool:
    return bool(json.loads((out / MANIFEST).read_text(encoding="utf-8"))["is_finished"])


def _finish(out: Path) -> None:
    """Say that everything is there, and remove what was needed on the way or left by actors that were killed."""
    for leaving in out.glob(".part-*.tmp"):
        leaving.unlink(missing_ok=True)
    shutil.rmtree(out / PARTITION, ignore_errors=True)
    _write_manifest(out, {**json.loads((out / MANIFEST).read_text(encoding="utf-8")), "is_finished": True})


def _write_manifest(out: Path, entries: dict[str, Any]) -> None:
    replace_text(out / MANIFEST, json.dumps(entries, indent=2) + "\n")


def _finished(out: Path) -> set[int]:
    """The shards whose files are there."""
    return {int(path.stem.removeprefix("part-")) for path in out.glob("part-*.parquet")}


def _wishes(options: RecommendOptions) -> dict[str, Any]:
    """The options as values that JSON can hold."""
    told = {name: value for name, value in vars(options).items() if name not in ("allow", "exclude")}
    allow = options.allow
    if not isinstance(allow, Allow):
        allow = Allow(where=allow) if isinstance(allow, pl.Expr) else Allow(ids=allow)
    where = allow.where
    return {
        **told,
        "allow": None if allow.ids is None else id_list(allow.ids, what="allow"),
        "where": where.meta.serialize(format="json") if isinstance(where, pl.Expr) else where and repr(where.key),
        "exclude": None if options.exclude is None else id_list(options.exclude, what="exclude"),
    }
