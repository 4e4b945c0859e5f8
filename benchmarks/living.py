"""A catalogue that changes by the day: updating a model beside fitting it anew each day, and doing nothing.

    python -m benchmarks.living --json
    python -m benchmarks.living --log clicks.parquet --days 5

The log (globo by default, from the folder that BEAMTREE_DATA names) is cut by time: a model of the preset small is
fitted on everything before the last days, then the days come one by one. After each, one model is updated with its rows
and another is fitted on all rows so far; both, and the first model, which stays as it is, are asked what a sample of
the users who were there before do on the NEXT day. Recall@20 over their new items, mean over users, then over days.

update_cost: seconds of all updates over seconds of all refits. update_quality: recall of updating over refitting;
nothing_quality: of doing nothing over refitting. recall_new_items: recall on items that appeared after the first fit;
new_item_recall_over_trend: the same over that of the most popular items of the moment (interactions halve every
half-life, of which the one with the best recall of the day is taken). insert_ms_per_item: adding items to the tree,
without learning.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import polars as pl

from beamtree.config import Config
from beamtree.data.columns import ITEM_ID, TIMESTAMP, USER_ID
from beamtree.data.interactions import InteractionLog, read_interactions
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.request import RecommendOptions
from beamtree.retrieval.tables import recommend_histories
from benchmarks.insertion import measure_insertion
from benchmarks.measure import report

DAY_MS = 86_400_000
DAYS = 5
USERS = 3000
K = 20
HALF_LIVES_HOURS = (2.0, 6.0, 24.0)
SEED = 0
INSERTED = 1000
FULL_DAY = 0.25
"""A day with fewer rows than this share of the fullest is not asked about: logs trail off."""
VALIDATION_SHARE = 0.05
"""Of the interactions, the newest, on which a fit chooses its weights, that of the trend among them."""

Recommend = Callable[[list[list[Any]]], list[list[Any]]]
"""From histories to lists of K items."""


@dataclass(frozen=True)
class Asked:
    """Users of a day: what they had before it, and the new items that they had on it."""

    histories: list[list[Any]]
    labels: list[set[Any]]

    def recall(self, lists: list[list[Any]], *, among: set[Any] | None = None) -> float:
        """Mean over users of the share of labels that their list holds; among: only these labels count."""
        found = []
        for items, labels in zip(lists, self.labels, strict=True):
            wanted = labels if among is None else labels & among
            if wanted:
                found.append(len(wanted.intersection(items)) / len(wanted))
        return fmean(found) if found else 0.0


@dataclass
class Course:
    """How one way to go through the days fared."""

    seconds: list[float] = field(default_factory=list)
    recall: list[float] = field(default_factory=list)
    recall_new: list[float] = field(default_factory=list)

    def note(self, asked: Asked, lists: list[list[Any]], *, new: set[Any]) -> None:
        """Take down a day."""
        self.recall.append(asked.recall(lists))
        self.recall_new.append(asked.recall(lists, among=new))


def measure(log: pl.DataFrame, *, days: int, day_length: float, config: Config, users: int) -> dict[str, Any]:
    """All figures for a log of user_id, item_id, timestamp."""
    end = _last_full_day(log, day_length=day_length)
    starts = [end - day_length * (days + 1 - number) for number in range(days + 2)]
    before = log.filter(pl.col(TIMESTAMP) < starts[0])
    known = set(before[ITEM_ID].unique())
    courses = {name: Course() for name in ("update", "refit", "nothing", "trend")}
    started = time.perf_counter()
    updated = _fit(before, config=config)
    first_fit = time.perf_counter() - started
    first = updated.recommender
    for number in range(days):
        day = log.filter(pl.col(TIMESTAMP).is_between(starts[number], starts[number + 1], closed="left"))
        so_far = log.filter(pl.col(TIMESTAMP) < starts[number + 1])
        started = time.perf_counter()
        updated.update(InteractionLog(day), force=True, progress=False)
        courses["update"].seconds.append(time.perf_counter() - started)
        started = time.perf_counter()
        refitted = _fit(so_far, config=config)
        courses["refit"].seconds.append(time.perf_counter() - started)
        next_day = log.filter(pl.col(TIMESTAMP).is_between(starts[number + 1], starts[number + 2], closed="left"))
        asked = ask(so_far, next_day, users=users, seed=SEED + number)
        new = set(next_day[ITEM_ID].unique()) - known
        courses["update"].note(asked, _lists(updated, asked.histories), new=new)
        courses["refit"].note(asked, _lists(refitted, asked.histories), new=new)
        courses["nothing"].note(asked, _lists(first, asked.histories), new=new)
        trends = [_trend(so_far, asked, half_life=hours / 24 * day_length) for hours in HALF_LIVES_HOURS]
        courses["trend"].note(asked, max(trends, key=asked.recall), new=new)
        so_well = ", ".join(f"{name} {course.recall[-1]:.4f}" for name, course in courses.items())
        print(f"day {number + 1} of {days}: recall@{K} on the next day: {so_well}", file=sys.stderr, flush=True)
    update, refit, nothing, trend = (courses[name] for name in ("update", "refit", "nothing", "trend"))
    return {
        "days": days,
        "users_asked": users,
        "first_fit_seconds": round(first_fit, 1),
        "update_seconds": [round(seconds, 1) for seconds in update.seconds],
        "refit_seconds": [round(seconds, 1) for seconds in refit.seconds],
        "update_cost": round(sum(update.seconds) / sum(refit.seconds), 3),
        "recall": {name: round(fmean(course.recall), 4) for name, course in courses.items()},
        "recall_by_day": {name: [round(value, 4) for value in course.recall] for name, course in courses.items()},
        "update_quality": round(fmean(update.recall) / fmean(refit.recall), 4),
        "nothing_quality": round(fmean(nothing.recall) / fmean(refit.recall), 4),
        "recall_new_items": {name: round(fmean(course.recall_new), 4) for name, course in courses.items()},
        "new_item_recall_over_trend": round(fmean(update.recall_new) / max(fmean(trend.recall_new), 1e-9), 2),
        "insert_ms_per_item": measure_insertion(updated.recommender.artefact, new_items=INSERTED).insert_ms_per_item,
    }


def ask(so_far: pl.DataFrame, next_day: pl.DataFrame, *, users: int, seed: int) -> Asked:
    """Some users with rows before and on a day."""
    there = next_day.select(USER_ID).unique().join(so_far.select(USER_ID).unique(), on=USER_ID).sort(USER_ID)
    chosen = there.sample(min(users, there.height), seed=seed, shuffle=True).sort(USER_ID)
    histories = (
        so_far.join(chosen, on=USER_ID, how="semi")
        .sort(USER_ID, TIMESTAMP, maintain_order=True)
        .group_by(USER_ID, maintain_order=True)
        .agg(ITEM_ID)
    )
    labels = next_day.join(chosen, on=USER_ID, how="semi").group_by(USER_ID).agg(pl.col(ITEM_ID).unique())
    both = histories.join(labels, on=USER_ID, suffix="_next")
    pairs = [(history, set(after) - set(history)) for _, history, after in both.iter_rows()]
    kept = [(history, after) for history, after in pairs if after]
    return Asked([history for history, _ in kept], [after for _, after in kept])


def _fit(log: pl.DataFrame, *, config: Config) -> DeepTreeRetriever:
    return DeepTreeRetriever(config).fit(InteractionLog(log), progress=False)


def _lists(model: Any, histories: list[list[Any]]) -> list[list[Any]]:
    recommender = model.recommender if isinstance(model, DeepTreeRetriever) else model
    found = recommend_histories(recommender, histories, options=RecommendOptions(k=K))
    lists: list[list[Any]] = [[] for _ in histories]
    for request, item in found.select("request", ITEM_ID).iter_rows():
        lists[request].append(item)
    return lists


def _trend(so_far: pl.DataFrame, asked: Asked, *, half_life: float) -> list[list[Any]]:
    """The most popular items of the moment, without those of the history."""
    now = so_far[TIMESTAMP].max()
    weights = 0.5 ** ((now - pl.col(TIMESTAMP)) / half_life)
    ranked = (
        so_far.group_by(ITEM_ID).agg(weights.sum().alias("weight")).sort("weight", ITEM_ID, descending=[True, False])
    )
    longest = max(map(len, asked.histories), default=0)
    popular = ranked[ITEM_ID].head(K + longest).to_list()
    return [[item for item in popular if item not in set(history)][:K] for history in asked.histories]


def _last_full_day(log: pl.DataFrame, *, day_length: float) -> float:
    """When the last day with many rows ends."""
    counts = log.group_by((pl.col(TIMESTAMP) // day_length).alias("day")).len()
    full = counts.filter(pl.col("len") >= FULL_DAY * pl.col("len").max())["day"].to_numpy()
    return (float(full.max()) + 1) * day_length


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--log", type=Path, help="a log with dates; default: globo in the folder of BEAMTREE_DATA")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--day-length", type=float, default=DAY_MS, help="in the units of the log's times")
    parser.add_argument("--users", type=int, default=USERS, help="asked on each day")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    path = arguments.log or Path(os.environ.get("BEAMTREE_DATA", "../shared/data")) / "globo" / "interactions.parquet"
    if not path.exists():
        raise SystemExit(f"There is no log {path}: name one with --log, or the folder of globo with BEAMTREE_DATA.")
    log = read_interactions(path).frame
    config = Config.preset(arguments.preset, data={"holdout": "time", "held_out_shares": (VALIDATION_SHARE, 0.0)})
    figures = measure(log, days=arguments.days, day_length=arguments.day_length, config=config, users=arguments.users)
    report({"preset": arguments.preset}, figures, as_json=arguments.json)


if __name__ == "__main__":
    main()
