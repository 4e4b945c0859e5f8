"""What people get: accuracy, exposure, example lists and latency, on lists that were made by hand."""

import numpy as np
import pytest

from beamtree.data.requests import Histories, Requests
from beamtree.data.split import HeldOut
from beamtree.diagnostics.accuracy import measure_accuracy
from beamtree.diagnostics.diagnose import examine
from beamtree.diagnostics.example_lists import take_examples
from beamtree.diagnostics.exposure import measure_exposure
from beamtree.diagnostics.latency import latency_widths, measure_latency
from beamtree.diagnostics.ranked_lists import CUTOFF, MODEL, RankedLists, num_systems, rank_for_users
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.protocol import evaluate
from beamtree.recommender import DeepTreeRetriever
from tests.small import small_config, two_group_log

LOG = two_group_log()


@pytest.fixture(scope="module")
def model() -> DeepTreeRetriever:
    return DeepTreeRetriever(small_config(model={"parts": ("memory",)})).fit(LOG)


@pytest.fixture(scope="module")
def ranked(model: DeepTreeRetriever) -> RankedLists:
    examined = examine(model, LOG, users=100, group=None, seed=0)
    return rank_for_users(examined.artefact, examined.dataset, examined.split, examined.asked.users)


def by_hand(lists: dict[str, list[list[int]]], labels: list[list[int]]) -> RankedLists:
    """Lists padded to the cutoff with -1."""
    padded = {
        name: np.array([row + [-1] * (CUTOFF - len(row)) for row in rows], dtype=np.int32)
        for name, rows in lists.items()
    }
    flat = np.array([item for row in labels for item in row], dtype=np.int32)
    offsets = np.cumsum([0, *map(len, labels)])
    nobody = np.zeros(len(labels), dtype=np.int64)
    users = HeldOut(nobody.astype(np.int32), nobody, nobody + 1, nobody + 1, nobody + 2)
    requests = Requests(Histories.of_lists([[0]] * len(labels)))
    return RankedLists(users, (flat, offsets), requests, None, padded, {})  # type: ignore[arg-type]


def test_exposure_by_hand() -> None:
    popularity = np.array([100, 50, 40, 30, 20, 10, 5, 4, 3, 2], dtype=np.int64)
    found = measure_exposure(
        by_hand({MODEL: [[0, 1], [0, 2]], "other": [[9, 8], [9, 8]]}, [[0], [3]]), popularity=popularity
    )
    model, other = found.systems
    assert (found.places, found.items) == (4, 10)
    assert (model.shown_items, model.coverage, model.distinct_lists) == (3, 0.3, 1.0)
    assert (model.head_share, model.median_popularity) == (0.5, 75.0)
    assert (other.shown_items, other.distinct_lists, other.head_share) == (2, 0.5, 0.0)
    assert found.model_bins == (0.5, 0.25, 0.25, *[0.0] * 7)
    assert (found.label_head_share, found.label_median_popularity) == (0.5, 65.0)


def test_accuracy_by_hand() -> None:
    lists = {MODEL: [[0], [1]] * 4, "good": [[5], [1]] * 4, "bad": [[5], [6]] * 4}
    found = measure_accuracy(by_hand(lists, [[0], [1]] * 4), num_items=10, config=small_config(), seed=0)
    assert [system.metrics["hit_rate"].mean for system in found.systems] == [1.0, 0.5, 0.0]
    assert found.model.lead is None
    best = found.best_baseline
    assert best is not None
    assert best.name == "good"
    assert best.lead is not None
    assert best.lead.mean == pytest.approx(0.5 * found.model.metrics["f"].mean)
    assert best.lead.low < best.lead.mean < best.lead.high
    hit_rate = found.systems[1].metrics["hit_rate"]
    assert 0.0 <= hit_rate.low < 0.5 < hit_rate.high <= 1.0
    assert found.verdict is not None
    assert "(good)" in found.verdict


def test_accuracy_is_that_of_the_evaluation(model: DeepTreeRetriever, ranked: RankedLists) -> None:
    examined = examine(model, LOG, users=100, group=None, seed=0)
    search = BeamSearch(model.recommender.engine, model.config.retrieval.beam_width)
    metrics = evaluate(search, examined.dataset, examined.split.test, config=model.config, cutoffs=(20,))
    found = measure_accuracy(ranked, num_items=len(examined.dataset.items), config=model.config, seed=0)
    assert found.model.metrics["f"].mean == pytest.approx(metrics["f@20"])
    assert {"popularity", "item-to-item"} <= {system.name for system in found.systems}
    assert len(found.systems) + len(found.left_out) == num_systems(examined.dataset, examined.artefact)


def test_examples_show_what_was_recommended(model: DeepTreeRetriever, ranked: RankedLists) -> None:
    examined = examine(model, LOG, users=100, group=None, seed=0)
    examples = take_examples(examined.artefact, examined.dataset, ranked)
    assert len(examples) == min(4, len(ranked.users))
    first = ranked.lists[MODEL][0]
    wanted = examined.dataset.items.decode(first[first >= 0][:10]).to_list()
    assert [item.title for item in examples[0].recommended] == [str(item) for item in wanted]
    labels, offsets = ranked.labels
    later = examined.dataset.items.decode(labels[offsets[0] : offsets[1]]).to_list()
    assert [item.is_hit for item in examples[0].recommended] == [item in later for item in wanted]
    assert any(item.because_of in examples[0].history for item in examples[0].recommended)


def test_latency_by_a_clock_of_ones_own(ranked: RankedLists) -> None:
    """The clock goes on by a millisecond whenever it is asked."""
    ticks = iter(range(10**6))
    found = measure_latency(ranked.engine, ranked.requests, own_width=8, clock=lambda: next(ticks) / 1000)
    leaves = ranked.engine.tree.num_leaves
    assert [result.width for result in found.results] == latency_widths(leaves, own_width=8)
    assert found.own.width == 8
    assert [result.median for result in found.results] == pytest.approx([1.0] * len(found.results))
    assert found.scan == pytest.approx(1.0)


def test_no_width_is_wider_than_the_leaves() -> None:
    assert latency_widths(300, own_width=150) == [20, 50, 100, 150, 200, 300]
    assert latency_widths(12, own_width=150) == [12]
