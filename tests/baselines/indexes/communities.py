"""A log of people who keep to one of several groups of items, and vectors in clusters."""

from importlib.util import find_spec
from typing import NamedTuple

import numpy as np
import pytest

from beamtree.baselines.protocol import Budget
from beamtree.baselines.registry import Entry
from beamtree.data.dataset import Dataset
from beamtree.types import Float32Array
from tests.baselines.small_logs import budget, dataset_of

GROUPS, GROUP_SIZE = 4, 6
NUM_ITEMS = GROUPS * GROUP_SIZE
"""Item i belongs to group i // GROUP_SIZE."""

BUDGET: Budget = budget()


def community_log() -> Dataset:
    """48 people, each with 12 interactions inside one group, in an order of their own."""
    generator = np.random.default_rng(0)
    lists = []
    for user in range(48):
        first = user % GROUPS * GROUP_SIZE
        lists.append((first + np.concatenate([generator.permutation(GROUP_SIZE) for _ in range(2)])).tolist())
    return dataset_of(lists, num_items=NUM_ITEMS)


class Cloud(NamedTuple):
    """Vectors (items, size) and queries (queries, size) around the same centres."""

    vectors: Float32Array
    queries: Float32Array

    def training_queries(self, count: int) -> Float32Array:
        """Other queries than those that are asked, as `TrainingQueries`."""
        return self.queries[50 : 50 + count]

    @property
    def asked(self) -> Float32Array:
        return self.queries[:50]

    def exact(self, k: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """The items of the highest inner products (50, k)."""
        return np.argsort(-(self.asked @ self.vectors.T), axis=1, kind="stable")[:, :k]


def cloud(*, items: int = 400, size: int = 8, seed: int = 0) -> Cloud:
    generator = np.random.default_rng(seed)
    centres = generator.standard_normal((20, size))

    def around(count: int) -> Float32Array:
        points = centres[generator.integers(0, len(centres), count)] + 0.5 * generator.standard_normal((count, size))
        return points.astype(np.float32)

    return Cloud(around(items), around(250))


def skip_without(*libraries: str) -> None:
    missing = [library for library in libraries if find_spec(library) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not installed: pip install 'beamtree[baselines,train]'")


def skip_without_libraries_of(entry: Entry) -> None:
    skip_without(*entry.libraries)
