"""Every baseline by name, in the order of tables: what it is, what it needs, whether it learns."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType

from beamtree.baselines.ease import Ease
from beamtree.baselines.ials import Ials
from beamtree.baselines.item_to_item import ItemToItem
from beamtree.baselines.personal_frequency import PersonalFrequency
from beamtree.baselines.popularity import Popularity
from beamtree.baselines.protocol import Baseline, Budget
from beamtree.baselines.sasrec import SasRec, SasRecWithItemToItem
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
"""Up to these sizes tfidf-knn and ease take some seconds, and stand in the table of simple baselines."""

Asked = str | Sequence[str | Baseline]
"""Which baselines: "none", "simple", "all", names with commas between them, or a list of names and of one's own."""


@dataclass(frozen=True)
class Entry:
    """One baseline.

    make: gives an unfitted one. libraries: modules that it imports when it is fitted; extra: what installs them.
    learns: by gradients or alternating steps, instead of counting or a closed form. is_simple: whether it stands
    beside every model on this data and under these settings, without being asked for.
    """

    make: Callable[[], Baseline]
    description: str
    is_simple: Callable[[Dataset, Config], bool]
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


def _always(_dataset: Dataset, _config: Config) -> bool:
    return True


def _never(_dataset: Dataset, _config: Config) -> bool:
    return False


_ENTRIES = (
    Entry(Popularity, "most training interactions", _always),
    Entry(
        TrendPopularity,
        "most interactions before the request, older ones counting less",
        lambda dataset, _: has_clock(dataset),
    ),
    Entry(
        PersonalFrequency,
        "what the person had most often and most recently, then popular items",
        lambda _, config: not excludes_seen(config),
    ),
    Entry(ItemToItem, "what followed the latest items of the history most often", _always),
    Entry(
        TfidfKnn,
        "what people with similar histories had",
        lambda dataset, _: (
            len(dataset.users) <= QUICK_KNN_USERS and len(dataset.sequences.items) <= QUICK_KNN_INTERACTIONS
        ),
        libraries=("scipy",),
    ),
    Entry(
        Ease,
        "linear item-to-item weights in closed form",
        lambda dataset, _: len(dataset.items) <= QUICK_EASE_ITEMS,
        libraries=("scipy",),
    ),
    Entry(Ials, "matrix factorisation for implicit feedback", _never, libraries=("scipy", "implicit"), learns=True),
    Entry(SasRec, "a transformer over the history, full softmax", _never, ("torch",), extra="train", learns=True),
    Entry(
        SasRecWithItemToItem,
        "SASRec and item-to-item, weighed on validation users",
        _never,
        ("torch",),
        extra="train",
        learns=True,
    ),
)

BASELINES = MappingProxyType({entry.make().name: entry for entry in _ENTRIES})
"""All baselines by name."""


def choose_baselines(asked: Asked, dataset: Dataset, *, config: Config) -> dict[str, Entry]:
    """Those that were asked for, by name, in the order of the registry, then those from outside as they were given.

    InputError for a name that nobody has, and for a baseline from outside under a name that is taken.
    """
    match asked:
        case "none":
            return {}
        case "all":
            return dict(BASELINES)
        case "simple":
            return {name: entry for name, entry in BASELINES.items() if entry.is_simple(dataset, config)}
    given = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    names = [each for each in given if isinstance(each, str)]
    others = [each for each in given if not isinstance(each, str)]
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
        chosen[other.name] = Entry(partial(_itself, other), "given by the caller", _never)
    return chosen


def _itself(baseline: Baseline) -> Baseline:
    return baseline
