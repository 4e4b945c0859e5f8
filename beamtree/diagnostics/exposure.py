"""Exposure of the items: coverage of the catalogue, and popularity bias of the lists."""

from dataclasses import dataclass

import numpy as np

from beamtree.diagnostics.ranked_lists import RankedLists
from beamtree.types import NOTHING, Float64Array, Int32Array, Int64Array

HEAD = 0.1
"""The share of the catalogue that counts as popular."""
BINS = 10


@dataclass(frozen=True)
class SystemExposure:
    """What one system shows.

    shown_items: distinct items in all lists; coverage: their share of the catalogue. head_share: the share of places
    that go to the most popular tenth of the items. median_popularity: training interactions of the median place.
    """

    name: str
    shown_items: int
    coverage: float
    distinct_lists: float
    head_share: float
    median_popularity: float


@dataclass(frozen=True)
class Exposure:
    """All systems, the model first, beside the labels.

    places: recommendations that were given in all. bins: by tenths of the catalogue, the most popular first, the
    model's share of places and the share of the labels.
    """

    places: int
    items: int
    systems: tuple[SystemExposure, ...]
    label_head_share: float
    label_median_popularity: float
    model_bins: tuple[float, ...]
    label_bins: tuple[float, ...]

    @property
    def model(self) -> SystemExposure:
        """The model itself."""
        return self.systems[0]


def measure_exposure(ranked: RankedLists, *, popularity: Int64Array) -> Exposure:
    """Count what the lists show. popularity: (items,), training interactions."""
    bin_of_item = _bins(popularity)
    labels = ranked.labels[0]
    known = labels[labels != NOTHING]
    systems = tuple(_system(name, items, popularity, bin_of_item) for name, items in ranked.lists.items())
    model = next(iter(ranked.lists.values()))
    label_bins = _shares(bin_of_item[known])
    return Exposure(
        places=int(np.count_nonzero(model != NOTHING)),
        items=len(popularity),
        systems=systems,
        label_head_share=float(label_bins[0]),
        label_median_popularity=float(np.median(popularity[known])) if len(known) else 0.0,
        model_bins=tuple(_shares(bin_of_item[model[model != NOTHING]]).tolist()),
        label_bins=tuple(label_bins.tolist()),
    )


def _system(name: str, lists: Int32Array, popularity: Int64Array, bin_of_item: Int64Array) -> SystemExposure:
    places = lists[lists != NOTHING]
    shown = len(np.unique(places))
    return SystemExposure(
        name=name,
        shown_items=shown,
        coverage=shown / len(popularity),
        distinct_lists=len({row.tobytes() for row in np.sort(lists, axis=1)}) / len(lists),
        head_share=float(_shares(bin_of_item[places])[0]),
        median_popularity=float(np.median(popularity[places])) if len(places) else 0.0,
    )


def _bins(popularity: Int64Array) -> Int64Array:
    """For each item its tenth of the catalogue, 0 for the most popular; the first holds ceil(HEAD * items) items."""
    rank = np.empty(len(popularity), dtype=np.int64)
    rank[np.argsort(-popularity, kind="stable")] = np.arange(len(popularity))
    size = max(1, int(np.ceil(HEAD * len(popularity))))
    return np.minimum(rank // size, BINS - 1)


def _shares(bins: Int64Array) -> Float64Array:
    return np.bincount(bins, minlength=BINS) / max(1, len(bins))
