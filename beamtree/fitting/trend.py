"""The weight of the trend: chosen on interactions after a point in time, with the counts up to it.

The other weights are chosen on users whose histories end anywhere in the log, where the latest trend does not apply. So
the trend is weighted last, and only if all labels are later than all counts: in updates, and in fits that hold out the
newest rows.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl

from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.parse import seconds_per_unit
from beamtree.data.requests import Requests
from beamtree.data.sequences import Sequences
from beamtree.data.split import HeldOut
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.protocol import held_out_requests
from beamtree.model.trend import Trend
from beamtree.retrieval.engine import Engine
from beamtree.types import AnyArray, Float32Array, Int32Array

SHARES_OF_SPAN = (1 / 192, 1 / 96, 1 / 48, 1 / 24, 1 / 12, 1 / 4, 1.0, 4.0)
"""Half-lives to choose from, as shares of the time that the asked interactions span: minutes to days of a day."""
WEIGHTS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
CANDIDATES = 200
"""So many of the model's best items and of the trend's are ranked for each user."""
TOP = 20
SURE = 3.0
"""A trend is used if its gain is at least this number of standard errors above 0: the best of many trials is biased
upwards."""


@dataclass(frozen=True)
class TrendChoice:
    """The weight of the trend, 0 where it does not help, its half-life, and recall@20 without and with it."""

    weight: float
    half_life: float
    without: float
    recall: float


@dataclass(frozen=True, eq=False)
class KnownInteractions:
    """All interactions up to a moment: times and items (n,), and what each counts, None = 1."""

    times: AnyArray
    items: Int32Array
    num_items: int
    weights: Float32Array | None = None

    @classmethod
    def before(cls, labels: HeldOut, dataset: Dataset) -> "KnownInteractions | None":
        """Of a log, all before the first label of held-out users, or all without any; None where it has no dates."""
        times, items, weights = dataset.timestamps, dataset.sequences.items, dataset.sequences.weights
        if times is None or seconds_per_unit(pl.Series(times)) is None:
            return None
        if len(labels):
            is_known = times < times[labels.label_start].min()
            times, items = times[is_known], items[is_known]
            weights = None if weights is None else weights[is_known]
        return cls(times, items, num_items=len(dataset.items), weights=weights) if len(items) else None

    def trend(self, half_life: float) -> Trend:
        """The trend at the last of them."""
        return Trend.count(self.times, self.items, num_items=self.num_items, half_life=half_life, weights=self.weights)


def weigh_trend(
    engine: Engine, dataset: Dataset, users: HeldOut, *, known: KnownInteractions, config: Config
) -> TrendChoice:
    """The weight and half-life that help most to foresee what held-out users did after all that is known.

    engine: without any trend. users: at least one.
    """
    assert dataset.timestamps is not None
    reachable = reachable_labels(users, dataset.sequences, config=config)
    last = dataset.timestamps[users.label_end - 1].max()
    return choose_trend(
        engine,
        held_out_requests(dataset, reachable.users, exclude_seen=reachable.excludes_seen),
        Sequences(*reachable.labels),
        known=known,
        span=float(last - known.times.max()),
        beam_width=config.retrieval.beam_width,
    )


def choose_trend(
    engine: Engine,
    requests: Requests,
    labels: Sequences,
    *,
    known: KnownInteractions,
    span: float,
    beam_width: int,
) -> TrendChoice:
    """The weight and half-life with the best recall@20, the trend added to what an engine scores without it.

    labels: a sequence for each request; span: how much time they cover, in the units of the known times.
    """
    found = engine.search(requests, k=CANDIDATES, beam_width=max(beam_width, CANDIDATES)).items
    trends = [known.trend(share * span).demand for share in SHARES_OF_SPAN]
    popular = [np.argsort(-trend, kind="stable")[:CANDIDATES] for trend in trends]
    prepared, tree = engine.scorer.prepare(requests), engine.tree
    recall = np.zeros((len(requests), len(trends), 1 + len(WEIGHTS)))
    weights = np.array([[0.0], *([weight] for weight in WEIGHTS)], dtype=np.float32)
    for row in range(len(requests)):
        wanted = np.unique(labels.of(row))
        seen = requests.excluded.of(row) if requests.excluded is not None else np.empty(0, dtype=np.int32)
        candidates = np.setdiff1d(np.concatenate([found[row][found[row] >= 0], *popular]), seen)
        scores = prepared.scores(row, tree.height, tree.leaf_of_item[candidates].astype(np.int64))
        is_wanted = np.isin(candidates, wanted) / len(wanted)
        for number, trend in enumerate(trends):
            totals = scores + weights * trend[candidates]
            top = np.argpartition(-totals, min(TOP, len(candidates)) - 1, axis=1)[:, :TOP]
            recall[row, number] = is_wanted[top].sum(axis=1)
    means = recall.mean(axis=0)
    number, place = divmod(int(np.argmax(means)), means.shape[1])
    without, gains = float(means[0, 0]), recall[:, number, place] - recall[:, 0, 0]
    if gains.mean() <= SURE * gains.std() / np.sqrt(len(gains)):
        return TrendChoice(0.0, SHARES_OF_SPAN[-1] * span, without, without)
    return TrendChoice((0.0, *WEIGHTS)[place], SHARES_OF_SPAN[number] * span, without, float(means[number, place]))
