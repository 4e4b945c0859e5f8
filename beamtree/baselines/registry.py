"""Every baseline by name, in the order of tables: description, requirements, whether it is trained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType

from beamtree.baselines.ease import Ease
from beamtree.baselines.ials import Ials
from beamtree.baselines.item_to_item import ItemToItem
from beamtree.baselines.next_item import GRU4REC, SASREC, NextItem, WithItemToItem
from beamtree.baselines.personal_frequency import PersonalFrequency
from beamtree.baselines.popularity import Popularity
from beamtree.baselines.protocol import Baseline, Budget
from beamtree.baselines.tfidf_knn import TfidfKnn
from beamtree.baselines.trend import TrendPopularity, has_clock
from beamtree.config import Config
from beamtree.data.dataset import Dataset
from beamtree.data.split import Split
from beamtree.errors import BaselineUnavailable, InputError
from beamtree.evaluation.answers import Answers
from beamtree.evaluation.protocol import excludes_seen

QUICK_KNN_USERS = 10_000
QUICK_KNN_INTERACTIONS = 2_000_000
QUICK_EASE_ITEMS = 2_000
"""Up to these sizes tfidf-knn and ease take seconds, and count as simple baselines."""

Asked = str | Sequence[str | Baseline]
"""Which baselines: "none", "simple", "all", names with commas between them, or a list of names and custom baselines.

As one of the names, simple means all simple baselines: "simple,ials"."""


@dataclass(frozen=True)
class Entry:
    """One baseline.

    make: gives an unfitted one. libraries: modules that it imports when it is fitted; extra: what installs them.
    learns: by gradients or alternating steps, instead of counting or a closed form. not_simple: the reason
    why it is not simple on this data and under these settings, and how to get it; None if it is.
    """

    make: Callable[[], Baseline]
    description: str
    not_simple: Callable[[Dataset, Config], str | None] = lambda _dataset, _config: None
    libraries: tuple[str, ...] = ()
    extra: str = "baselines"
    learns: bool = False

    def fit(self, dataset: Dataset, split: Split, *, budget: Budget) -> Answers:
        """Fitted to the training spans; BaselineUnavailable where a library is missing or this data is not for it."""
        baseline = self.make()
        missing = [library for library in self.libraries if find_spec(library) is None]
        if missing:
            raise BaselineUnavailable(
                f"{baseline.name} needs {' and '.join(missing)}: pip install 'beamtree[{self.extra}]'."
            )
        return baseline.fit(dataset, split, budget=budget)


def _takes_minutes(_dataset: Dataset, _config: Config) -> str:
    learning = [name for name, entry in BASELINES.items() if entry.learns]
    return f"{', '.join(learning[:-1])} and {learning[-1]} learn, which takes minutes: {_how('all')}."


def _without_clock(dataset: Dataset, _config: Config) -> str | None:
    return (
        None if has_clock(dataset) else "trend-popularity needs moments, and the times of this log only order its rows."
    )


def _without_repeats(_dataset: Dataset, config: Config) -> str | None:
    if not excludes_seen(config):
        return None
    return (
        "personal-frequency recommends what a person had before, and this model leaves that out: fit it with "
        "retrieval.exclude_seen=false to compare the two."
    )


def _large_for_knn(dataset: Dataset, _config: Config) -> str | None:
    users, interactions = len(dataset.users), len(dataset.sequences.items)
    if users <= QUICK_KNN_USERS and interactions <= QUICK_KNN_INTERACTIONS:
        return None
    return f"tfidf-knn takes long for {users:,} users with {interactions:,} interactions: {_how('simple,tfidf-knn')}."


def _large_for_ease(dataset: Dataset, _config: Config) -> str | None:
    items = len(dataset.items)
    return None if items <= QUICK_EASE_ITEMS else f"ease takes long for {items:,} items: {_how('simple,ease')}."


def _how(asked: str) -> str:
    return f"use beamtree evaluate --baselines {asked} (baselines={asked!r})"


def _encoder(baseline: NextItem, description: str) -> tuple[Entry, Entry]:
    """An encoder alone, and with item-to-item."""
    mixed, weighed = WithItemToItem(baseline), f"{baseline.name} and item-to-item, weighed on validation users"
    return (
        Entry(lambda: baseline, description, _takes_minutes, ("torch",), extra="train", learns=True),
        Entry(lambda: mixed, weighed, _takes_minutes, ("torch",), extra="train", learns=True),
    )


def _given(baseline: Baseline) -> Entry:
    return Entry(lambda: baseline, "given by the caller")


_ENTRIES = (
    Entry(Popularity, "most training interactions"),
    Entry(TrendPopularity, "most interactions before the request, older ones counting less", _without_clock),
    Entry(PersonalFrequency, "what the person had most often and most recently, then popular items", _without_repeats),
    Entry(ItemToItem, "what followed the latest items of the history most often"),
    Entry(TfidfKnn, "what people with similar histories had", _large_for_knn, libraries=("scipy",)),
    Entry(Ease, "linear item-to-item weights in closed form", _large_for_ease, libraries=("scipy",)),
    Entry(
        Ials, "matrix factorisation for implicit feedback", _takes_minutes, libraries=("scipy", "implicit"), learns=True
    ),
    *_encoder(SASREC, "self-attention over the history, full softmax"),
    *_encoder(GRU4REC, "a gated recurrent layer over the history, full softmax"),
)

BASELINES = MappingProxyType({entry.make().name: entry for entry in _ENTRIES})
"""All baselines by name."""


def choose_baselines(asked: Asked, dataset: Dataset, *, config: Config) -> dict[str, Entry]:
    """The requested baselines in the order of the registry, then custom ones in the given order.

    InputError for an unknown name, and for a custom baseline whose name is taken.
    """
    if asked == "none":
        return {}
    if asked == "all":
        return dict(BASELINES)
    given = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    names = [each for each in given if isinstance(each, str)]
    others = [each for each in given if not isinstance(each, str)]
    if "simple" in names:
        simple = [name for name, entry in BASELINES.items() if entry.not_simple(dataset, config) is None]
        names = [*simple, *(name for name in names if name != "simple")]
    unknown = [name for name in names if name not in BASELINES]
    if unknown:
        raise InputError(
            f"Expected baselines by name, got {', '.join(map(repr, unknown))}. Choose from {', '.join(BASELINES)}, or "
            "none, simple or all."
        )
    chosen = {name: entry for name, entry in BASELINES.items() if name in names}
    for other in others:
        if other.name in BASELINES or other.name in chosen:
            raise InputError(f"There is a baseline {other.name!r} already. Give yours another name.")
        chosen[other.name] = _given(other)
    return chosen


def reasons_left_out(asked: Asked, dataset: Dataset, *, config: Config) -> dict[str, str]:
    """Why baselines are not among the simple ones, if these were requested; sentences by name."""
    names = asked.split(",") if isinstance(asked, str) else asked
    if "simple" not in [name.strip() for name in names if isinstance(name, str)]:
        return {}
    chosen = choose_baselines(asked, dataset, config=config)
    reasons = {name: entry.not_simple(dataset, config) for name, entry in BASELINES.items() if name not in chosen}
    return {name: reason for name, reason in reasons.items() if reason is not None}
