"""From a log to a data set, with the defaults derived from its profile.

Which users are long enough to be held out, whether seen items may be recommended, how much of a history is read,
whether tied rows are shuffled: all follow from the log, once, before anything is split or learned, unless a setting
overrides it, and a model records the decisions.
"""

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.features import FeatureSchema
from beamtree.data.interactions import InteractionLog
from beamtree.data.profile import LONG_HISTORY, MIN_LONG_USERS, LogProfile, measure_log
from beamtree.data.request_features import RequestFeatures
from beamtree.data.ties import settle_ties

MIN_DEFAULT_HISTORY: Final = 10
MAX_DEFAULT_HISTORY: Final = 40
"""The lowest and the highest default for the number of items of a history that an encoder reads."""

WORTH_A_SENTENCE: Final = 0.001
"""Ties below this share of the rows are not spoken of."""


@dataclass(frozen=True, eq=False)
class PreparedLog:
    """A log prepared for training.

    dataset: tied rows shuffled where that was decided, with the features that are read; profile: of the kept users,
    their rows in the order of the file; config: nothing in it is open. item_features: what the columns of the item
    table are, empty without one.
    """

    dataset: Dataset
    profile: LogProfile
    config: Config
    item_features: FeatureSchema = field(default_factory=FeatureSchema)

    def lines(self) -> list[str]:
        """What was read, what it is like and what follows, as sentences."""
        reading = [] if self.dataset.report is None else self.dataset.report.lines()
        decisions = explain_decisions(self.profile, config=self.config)
        features = [*self.item_features.lines(), *self.dataset.features.read.lines()]
        return [*reading, *self.profile.lines(), *decisions, *features]


def prepare_log(
    log: InteractionLog,
    *,
    config: Config,
    items: pl.DataFrame | None = None,
    users: pl.DataFrame | None = None,
    read: RequestFeatures | None = None,
) -> PreparedLog:
    """Prepare a log as the settings say and measure it; what they leave open is decided by the measures.

    items, users: as in `prepare_dataset`, which also says how this fails. read: the columns of users and contexts that
    are read; by default all of them, as `RequestFeatures.infer` finds them. SettingsError where log.features names
    a column that the item table lacks, DataError where it cannot be what it is declared.
    """

    def prepared(rows: InteractionLog) -> Dataset:
        data = config.data
        return prepare_dataset(
            rows,
            items=items,
            min_interactions=data.min_interactions,
            catalogue=data.catalogue,
            half_life_days=config.log.half_life_days,
            users=users,
        )

    dataset = prepared(log)
    profile = measure_log(dataset.sequences, dataset.timestamps, num_items=len(dataset.items))
    decided = decide(config, profile)
    if decided.decided.shuffle_ties:
        dataset = prepared(settle_ties(log, config=decided))
    found = RequestFeatures.infer(dataset, config.log) if read is None else read
    of_items = FeatureSchema() if items is None else FeatureSchema.infer(dataset.item_table, config.log.item_features)
    return PreparedLog(dataset.reading(found), profile, decided, of_items)


def decide(config: Config, profile: LogProfile) -> Config:
    """The settings with everything decided that they leave to the log."""
    retrieval, data, found = config.retrieval, config.data, config.decided
    if retrieval.exclude_seen is None:
        retrieval = retrieval.model_copy(update={"exclude_seen": not profile.people_repeat})
    if data.min_held_out is None:
        data = data.model_copy(update={"min_held_out": profile.long_history})
    if found.shuffle_ties is None:
        is_leak = profile.ties_are_sorted and data.protocol != "paper"
        found = found.model_copy(update={"shuffle_ties": is_leak})
    if found.history_length is None:
        found = found.model_copy(update={"history_length": _history_length(profile)})
    return config.model_copy(update={"data": data, "retrieval": retrieval, "decided": found})


def _history_length(profile: LogProfile) -> int:
    """The number of latest items that an encoder reads: the history length of nearly all users, within bounds."""
    return min(max(profile.usual_history, MIN_DEFAULT_HISTORY), MAX_DEFAULT_HISTORY)


def explain_decisions(profile: LogProfile, *, config: Config) -> list[str]:
    """The derived defaults and their reasons, as sentences; config: fully resolved."""
    return [
        *_explain_held_out(profile, config=config),
        explain_seen_items(profile, config=config),
        *_explain_ties(profile, config=config),
        *_explain_history_length(profile, config=config),
        *_explain_half_life(config),
    ]


def _explain_history_length(profile: LogProfile, *, config: Config) -> list[str]:
    """How much of a history the encoder reads, and why; nothing where no part of the score has one."""
    if "tower" not in config.model.parts:
        return []
    read = config.encoder_history
    latest = f"the encoder reads the latest {read:,} items of a history"
    if read != _history_length(profile):
        return [f"{latest}, as model.history_length={read} asks"]
    usual = f"95 % of the users have at most {profile.usual_history:,} interactions"
    return [f"{usual}: {latest}; model.history_length=N overrules"]


def _explain_half_life(config: Config) -> list[str]:
    """How fast interactions lose weight; nothing where they do not."""
    days = config.log.half_life_days
    return [] if days is None else [f"an interaction counts half as much as one {days:g} days later"]


def _explain_held_out(profile: LogProfile, *, config: Config) -> list[str]:
    """Which users can be held out, why, and how to override it; nothing if all or none can."""
    asked, shortest = config.data.decided_min_held_out, profile.shortest_history
    enough, by_itself = max(asked, shortest), max(profile.long_history, shortest)
    if config.data.holdout == "none" or enough == by_itself == shortest:
        return []
    if enough != by_itself:
        return [f"only users with at least {asked} interactions can be held out, as data.min_held_out={asked} asks"]
    long_users = f"{profile.long_users:,} of {profile.users:,} users have at least {profile.long_history} interactions"
    if profile.long_history < LONG_HISTORY:
        long_users = f"fewer than {MIN_LONG_USERS} users have {LONG_HISTORY} interactions, {long_users}"
    return [f"{long_users}: only they can be held out, all are learned from; data.min_held_out=N overrules"]


def explain_seen_items(profile: LogProfile, *, config: Config) -> str:
    """Whether seen items may be recommended, why, and how to override it."""
    excluded = config.retrieval.excludes_seen
    repeats = f"{profile.repeat_share:.1%} of the interactions repeat an item"
    outcome = "seen items are not recommended" if excluded else "seen items may be recommended"
    if excluded == profile.people_repeat:
        return f"{repeats}, yet {outcome}, as retrieval.exclude_seen={_toml(excluded)} asks"
    return f"{repeats}: {outcome}; retrieval.exclude_seen={_toml(not excluded)} overrules"


def _explain_ties(profile: LogProfile, *, config: Config) -> list[str]:
    shuffled = bool(config.decided.shuffle_ties)
    if profile.tied_share < WORTH_A_SENTENCE and not shuffled:
        return []
    order = "are sorted by item" if profile.ties_are_sorted else "are in no order of the items"
    tied = f"{profile.tied_share:.1%} of the rows share user and time with another and {order}"
    outcome = f"shuffled by seed {config.split_seed}" if shuffled else "left in the order of the file"
    if shuffled != profile.ties_are_sorted:
        warning = ", which gives the next item away" if profile.ties_are_sorted else ""
        reason = "is published" if config.data.protocol == "paper" else "was decided before"
        return [f"{tied}{warning}: {outcome}, as {reason}"]
    return [f"{tied}: {outcome}"]


def _toml(value: bool) -> str:
    return "true" if value else "false"
