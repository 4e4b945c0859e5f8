"""A model goes on: new rows, new items and new users, and whether the result is better than what is in use.

New items find their places in the tree first, by what is known of them and by their first rows. Then the encoder learns
on, everything that is counted is counted again, and the vectors of inner nodes follow; the weights of the parts stay.
Subtrees that lead to their items less well than before are placed anew, unless that finds less.
"""

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from beamtree.artefact import Artefact
from beamtree.catalogue.change import change_catalogue
from beamtree.data.columns import ITEM_ID
from beamtree.data.interactions import InteractionLog
from beamtree.data.parse import seconds_per_unit
from beamtree.data.split import Split
from beamtree.errors import InputError, UpdateRefused
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import evaluate, excludes_seen
from beamtree.fitting.calibration import TREND
from beamtree.fitting.run import training_popularity
from beamtree.fitting.trend import KnownInteractions, TrendChoice, weigh_trend
from beamtree.model.memory import Memory
from beamtree.model.tower import TOWER
from beamtree.model.trend import Trend
from beamtree.retrieval.recommender import Recommender
from beamtree.types import AnyArray
from beamtree.updating.encoder import Continuation
from beamtree.updating.rows import ExtendedLog, extend_log, hold_out_newest, ids_like, newer_rows
from beamtree.updating.state import LearnedLog, UpdateState
from beamtree.updating.tower import FallenSubtrees, learn_tower

CHOSEN_BY = "recall@20"
"""What must not fall for an update, or another placement of items, to be taken."""

NOBODY_TO_ASK = "not compared with the model in use: no user who was known before has new rows that could be foreseen"


@dataclass(frozen=True, eq=False)
class Verdict:
    """The model before and after an update, asked what some users did in the new rows."""

    before: Metrics
    after: Metrics

    @property
    def is_worse(self) -> bool:
        """Whether the update would do worse than what is in use."""
        return self.after[CHOSEN_BY] < self.before[CHOSEN_BY]

    def __str__(self) -> str:
        before, after = self.before[CHOSEN_BY], self.after[CHOSEN_BY]
        digits = 4 if f"{before:.4f}" != f"{after:.4f}" else 6
        return (
            f"{CHOSEN_BY} on the newest rows of {self.after.num_users:,} users: {before:.{digits}f} before, "
            f"{after:.{digits}f} now"
        )


@dataclass(frozen=True, eq=False)
class Replacement:
    """Subtrees that were placed anew, and the updated model with them as they were and as they would be."""

    subtrees: FallenSubtrees
    before: Metrics
    after: Metrics

    @property
    def is_kept(self) -> bool:
        """Whether the new placement is taken: it must not find less."""
        return self.after[CHOSEN_BY] >= self.before[CHOSEN_BY]

    @property
    def kept(self) -> Metrics:
        """Of the placement that is taken."""
        return self.after if self.is_kept else self.before

    def __str__(self) -> str:
        before, after = self.before[CHOSEN_BY], self.after[CHOSEN_BY]
        if self.is_kept:
            return f"{self.subtrees} and were placed anew: {CHOSEN_BY} {before:.4f} without that, {after:.4f} with it"
        return f"{self.subtrees} and stay: placed anew, {CHOSEN_BY} would be {after:.4f} instead of {before:.4f}"

    def as_json(self) -> dict[str, Any]:
        """For the report of an update."""
        return {
            "subtrees": len(self.subtrees.roots),
            "of": self.subtrees.num_subtrees,
            "items": self.subtrees.num_items,
            "log_likelihood": [round(value, 4) for value in self.subtrees.mean_log_likelihoods],
            CHOSEN_BY: [round(self.before[CHOSEN_BY], 5), round(self.after[CHOSEN_BY], 5)],
            "is_kept": self.is_kept,
        }


MEMORY = "memory"


@dataclass(frozen=True, eq=False)
class Updated:
    """A model that went on, what it needs to go on again, and what happened.

    verdict: None where no user who was known before has new rows. replacement: what became of subtrees whose likelihood
    fell, where there are any.
    """

    artefact: Artefact
    state: UpdateState
    verdict: Verdict | None
    new_rows: int
    skipped_rows: int
    new_users: int
    new_items: int
    seconds: float
    replacement: Replacement | None = None

    def refuse_if_worse(self) -> None:
        """UpdateRefused where the update does worse than the model before it."""
        if self.verdict is not None and self.verdict.is_worse:
            raise UpdateRefused(
                f"The update would do worse than the model in use, so nothing was changed: {self.verdict}. Check the "
                "new rows; fit the model again on the whole log; or take it all the same with --force (force=True)."
            )

    def lines(self) -> list[str]:
        """The same as sentences."""
        skipped = f", {self.skipped_rows:,} others are not newer than the model" if self.skipped_rows else ""
        return [
            f"{self.new_rows:,} new rows{skipped}",
            f"{self.new_users:,} new users, {self.new_items:,} new items",
            *([] if self.replacement is None else [str(self.replacement)]),
            NOBODY_TO_ASK if self.verdict is None else str(self.verdict),
            f"{self.seconds:.1f} s",
        ]


def update_model(
    artefact: Artefact,
    state: UpdateState,
    log: InteractionLog,
    *,
    items: pl.DataFrame | None,
    continuation: Continuation,
    users: pl.DataFrame | None = None,
) -> Updated:
    """Go on from a model with the rows of a log that are newer than all that it has learned from.

    items: a table that describes new items; those that the model knows are passed over. users: a table that describes
    users, whose rows replace what was known of them. DataError where no row is new;
    InputError for a model whose score has parts that are learned otherwise.
    """
    started = time.monotonic()
    _check_parts(artefact)
    settings = artefact.config.log
    rows, skipped = newer_rows(log, state.log, row_order=settings.row_order)
    new_items = _new_items(artefact, rows, items)
    grown = artefact
    if not new_items.is_empty():
        grown = change_catalogue(artefact, add=new_items, interactions=InteractionLog(rows)).artefact
    half_life, known_items = settings.half_life_days, grown.item_table
    extended = extend_log(
        state.log, rows, item_table=known_items, skipped=skipped, half_life_days=half_life, user_table=users
    )
    extended = replace(extended, dataset=extended.dataset.reading(artefact.request_features))
    split = hold_out_newest(extended, exclude_seen=excludes_seen(artefact.config), seed=artefact.config.training.seed)
    weights = dict(grown.weights)
    optimiser, trend, tower = dict(state.optimiser), None, None
    if TOWER in artefact.config.model.parts:
        tower = learn_tower(grown, extended, split, optimiser=optimiser, continuation=continuation)
        weights, optimiser = weights | tower.arrays, tower.optimiser
    if MEMORY in artefact.config.model.parts:
        trend = _weighed_trend(artefact, state.log, extended, split)
        weights |= _memory(grown, extended, split, trend=trend)
    dataset = extended.dataset
    now = replace(
        grown,
        weights=weights,
        popularity=training_popularity(dataset, split),
        data_fingerprint=dataset.fingerprint,
    )
    verdict = _verdict(artefact, now, extended, split)
    replacement = None
    if tower is not None and tower.fallen is not None and verdict is not None:
        now, replacement = _try_replacement(now, tower.fallen, verdict, extended, split)
        verdict = replace(verdict, after=replacement.kept)
    seconds = time.monotonic() - started
    report: dict[str, Any] = {"rows": extended.num_new, "split": split.description, "seconds": round(seconds, 1)}
    report |= {} if trend is None else {"trend": asdict(trend)}
    report |= {} if replacement is None else {"replacement": replacement.as_json()}
    updates = [*artefact.training.get("updates", []), report]
    metrics = {} if verdict is None else {"newest": dict(verdict.after)}
    return Updated(
        replace(now, metrics=metrics, training={**artefact.training, "updates": updates}),
        UpdateState(LearnedLog.of(dataset), optimiser),
        verdict,
        new_rows=extended.num_new,
        skipped_rows=skipped,
        new_users=len(dataset.users) - len(state.log.users),
        new_items=new_items.height,
        seconds=seconds,
        replacement=replacement,
    )


def _check_parts(artefact: Artefact) -> None:
    learned = [name for name in artefact.config.model.parts if name not in (TOWER, MEMORY)]
    if learned:
        raise InputError(
            f"An update goes on with the parts {TOWER} and {MEMORY} of a score; this model also has "
            f"{', '.join(learned)}. Fit it again on the whole log."
        )


def _new_items(artefact: Artefact, rows: pl.DataFrame, items: pl.DataFrame | None) -> pl.DataFrame:
    """A row for each item that the model does not know: of the new rows, and of the table that describes items.

    DataError where the new rows have item ids of another type.
    """
    known = artefact.item_table[ITEM_ID]
    met = ids_like(known, rows[ITEM_ID]).to_frame().unique(maintain_order=True)
    described = met if items is None else items.with_columns(pl.col(ITEM_ID).cast(known.dtype))
    undescribed = met.join(described, on=ITEM_ID, how="anti")
    everything = pl.concat([described, undescribed], how="diagonal_relaxed")
    return everything.join(known.to_frame(), on=ITEM_ID, how="anti", maintain_order="left")


def _memory(grown: Artefact, extended: ExtendedLog, split: Split, *, trend: TrendChoice | None) -> dict[str, AnyArray]:
    """What is counted now, under the weights that it had and the trend's new one, named by part."""
    before, dataset = Memory.from_arrays(grown.part(MEMORY)), extended.dataset
    now = replace(
        Memory.count(
            dataset.sequences,
            split.train,
            num_items=len(dataset.items),
            megabytes=grown.config.model.memory_megabytes,
            balance=before.weights.balance,
        ),
        weights=before.weights if trend is None else replace(before.weights, trend=trend.weight),
        gates=before.gates,
    )
    times = dataset.timestamps
    if times is None:
        return _named(now)
    trend_now = Trend(moment=float(times.max()))
    if now.weights.trend > 0.0:
        sequences = dataset.sequences
        is_learned = np.arange(len(sequences.items)) < np.repeat(split.train.end, sequences.lengths)
        known = KnownInteractions(
            times[is_learned],
            sequences.items[is_learned],
            num_items=len(dataset.items),
            weights=None if sequences.weights is None else sequences.weights[is_learned],
        )
        trend_now = known.trend(before.trend.half_life if trend is None else trend.half_life)
    return _named(replace(now, trend=trend_now))


def _named(memory: Memory) -> dict[str, AnyArray]:
    return {f"{MEMORY}/{name}": array for name, array in memory.arrays().items()}


def _weighed_trend(before: Artefact, known: LearnedLog, extended: ExtendedLog, split: Split) -> TrendChoice | None:
    """How much the trend would have helped the model in use to foresee the new rows; None without dates or users."""
    dataset = extended.dataset
    if known.timestamps is None or not len(split.validation) or TREND in before.config.model.weights:
        return None
    if seconds_per_unit(pl.Series(known.timestamps)) is None:
        return None
    memory = Memory.from_arrays(before.part(MEMORY))
    without = memory.weighed(replace(memory.weights, trend=0.0))
    weights = dict(before.weights) | _named(without)
    return weigh_trend(
        Recommender(replace(before, weights=weights)).engine,
        dataset,
        split.validation,
        known=KnownInteractions(
            known.timestamps,
            known.sequences.items,
            num_items=before.tree.num_items,
            weights=known.sequences.weights,
        ),
        config=before.config,
    )


def _verdict(before: Artefact, after: Artefact, extended: ExtendedLog, split: Split) -> Verdict | None:
    if not len(split.validation):
        return None
    return Verdict(_asked(before, extended, split), _asked(after, extended, split))


def _try_replacement(
    now: Artefact, fallen: FallenSubtrees, verdict: Verdict, extended: ExtendedLog, split: Split
) -> tuple[Artefact, Replacement]:
    """The model with these subtrees placed anew where it does not find less, else as it is; and what came of it."""
    placed = fallen.placed
    moved = replace(now, tree=placed.tree, weights={**now.weights, "tower/node_table": placed.node_table})
    replacement = Replacement(fallen, verdict.after, _asked(moved, extended, split))
    return moved if replacement.is_kept else now, replacement


def _asked(artefact: Artefact, extended: ExtendedLog, split: Split) -> Metrics:
    search = BeamSearch(Recommender(artefact).engine, artefact.config.retrieval.beam_width)
    return evaluate(search, extended.dataset, split.validation, config=artefact.config, cutoffs=(20,))
