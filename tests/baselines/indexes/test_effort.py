"""Recall of exact search by effort on random vectors, and what an index holds."""

from pathlib import Path

import numpy as np
import pytest

from beamtree.baselines.indexes.index import BuildIndex, VectorIndex
from beamtree.baselines.indexes.ip_nsw import IpNsw
from beamtree.baselines.indexes.ivf_pq import IvfPq
from beamtree.baselines.indexes.qinco import Qinco
from beamtree.baselines.indexes.rotlex import Rotlex
from beamtree.baselines.indexes.scann import PUBLISHED_SCANN, SCANN, Scann
from tests.baselines.indexes.communities import BUDGET, Cloud, cloud, skip_without

K = 10
NOISE = 0.02
BUILDERS: dict[str, tuple[BuildIndex, tuple[str, ...], float]] = {
    "scann": (SCANN, ("scann",), 0.95),
    "scann-published": (PUBLISHED_SCANN, ("scann",), 0.6),
    "ip-nsw": (IpNsw(), ("faiss",), 0.99),
    "ivf-pq": (IvfPq(), ("faiss",), 0.85),
    "qinco": (Qinco(blocks=1, width=16, epochs=3), ("faiss", "torch", "scipy"), 0.85),
    "rotlex": (Rotlex(width=32, rounds=1, epochs_per_round=10), ("faiss", "torch", "scipy"), 1.0),
}
"""Each with its libraries, and the recall that its greatest effort has at least."""

VECTORS = cloud()


@pytest.fixture(scope="module", params=list(BUILDERS))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def index(name: str) -> VectorIndex:
    build, libraries, _ = BUILDERS[name]
    skip_without(*libraries)
    return build(VECTORS.vectors, queries=VECTORS.training_queries, budget=BUDGET)


def recall(index: VectorIndex, points: Cloud, *, effort: int) -> float:
    found = index.search(points.asked, K, effort).items
    return float(np.mean([np.isin(exact, row).mean() for exact, row in zip(points.exact(K), found, strict=True)]))


def test_more_effort_never_lowers_recall(name: str, index: VectorIndex) -> None:
    recalls = [recall(index, VECTORS, effort=effort) for effort in index.efforts]
    best_before = np.maximum.accumulate(recalls)
    assert (np.array(recalls[1:]) >= best_before[:-1] - NOISE).all(), recalls
    assert recalls[-1] >= BUILDERS[name][2], recalls


def test_the_least_effort_misses_something(name: str, index: VectorIndex) -> None:
    """The knob does something; a graph of 400 nodes and the shortlist of a good code leave nothing to miss."""
    if name not in ("ip-nsw", "qinco"):
        assert recall(index, VECTORS, effort=index.efforts[0]) < recall(index, VECTORS, effort=index.efforts[-1]) - 0.1


def test_what_is_found_is_there_once(index: VectorIndex) -> None:
    for effort in (index.efforts[0], index.efforts[-1]):
        for row in index.search(VECTORS.asked, K, effort).items:
            present = row[row >= 0]
            assert len(np.unique(present)) == len(present)


def test_index_bytes_are_what_it_holds(name: str, index: VectorIndex) -> None:
    """Counted by hand: the arrays that each index must hold, and no more than the heads of their formats beside."""
    items, size = VECTORS.vectors.shape
    floats, ids = 4 * size, 8
    lists, leaves = 50, 20
    held = {
        "scann": items * floats + leaves * floats + items * size // 4 + items * 4,
        "scann-published": 100 * floats + items * size // 8 + items * 4,
        "ip-nsw": items * floats + items * 32 * 4,
        "ivf-pq": items * (size // 2 + ids) + (lists + 256) * floats,
        "qinco": items * 8 + 8 * 256 * floats + 8 * 256 * floats + 7 * 4 * (2 * size**2 + 2 * size * 16),
        "rotlex": items * (floats + ids) + 4 * 32 * (49 + 7 + size + 32 + 2 + 8),
    }[name]
    assert held <= index.index_bytes <= held * 1.1 + 4096


@pytest.mark.parametrize("build", [SCANN, PUBLISHED_SCANN], ids=["scann", "scann-published"])
def test_scann_counts_what_it_saves(build: Scann, tmp_path: Path) -> None:
    """On disk, centres are doubles and each code has a byte, about twice of what memory has; vectors are the same."""
    skip_without("scann")
    points = cloud(items=2000, size=24)
    index = build(points.vectors, queries=points.training_queries, budget=BUDGET)
    build.searcher(points.vectors, leaves=index.efforts[-1], searched=index.usual_effort).serialize(str(tmp_path))
    saved = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert saved / 2.5 <= index.index_bytes <= saved
    assert (tmp_path / "dataset.npy").exists() == bool(build.reordered)


def test_a_larger_catalogue_takes_more(name: str, index: VectorIndex) -> None:
    build = BUILDERS[name][0]
    half = build(VECTORS.vectors[:200], queries=VECTORS.training_queries, budget=BUDGET)
    assert half.index_bytes < index.index_bytes
