"""Rectified labels under perturbed probabilities."""

import numpy as np
import pytest

from beamtree.data.split import HeldOut
from beamtree.diagnostics.held_out import SampledUsers
from beamtree.diagnostics.label_changes import measure_label_changes, perturb, rectified_labels, softmax
from beamtree.model.estimator import PopularityEstimator
from beamtree.tree.build import plant
from tests.small import sequences_of

TREE = plant(np.arange(4, dtype=np.int32), branching=2)


def asked_for(targets: list[int]) -> SampledUsers:
    """One user per target, whose history is item 0."""
    sequences = sequences_of([[0, target] for target in targets])
    start = sequences.offsets[:-1]
    users = HeldOut(np.arange(len(targets), dtype=np.int32), start, start + 1, start + 1, start + 2)
    return SampledUsers("validation", users, len(targets), sequences)


def test_labels_by_hand() -> None:
    """Item 1 is the best of the left half and of all: positive everywhere. Item 2 wins nothing but its own leaf."""
    probabilities = np.array([[0.1, 0.5, 0.1, 0.3], [0.1, 0.5, 0.1, 0.3]])
    labels = rectified_labels(probabilities, np.array([1, 2], dtype=np.int32), tree=TREE)
    assert labels.tolist() == [[True, True], [False, True]]


def test_noise_is_clipped_and_rows_are_normalised() -> None:
    probabilities = np.array([[0.5, 0.3, 0.2, 0.0]])
    shifted = perturb(probabilities, threshold=0.01, generator=np.random.default_rng(0))
    assert shifted.sum() == pytest.approx(1.0)
    assert shifted[0, 3] == 0.0
    scale = shifted[0, 0] / 0.5
    assert np.abs(shifted / scale - probabilities).max() < 0.05
    assert (shifted != probabilities)[0, :3].all()


def test_what_falls_below_zero_is_zero() -> None:
    probabilities = np.full((1, 1000), 1e-3)
    shifted = perturb(probabilities, threshold=0.01, generator=np.random.default_rng(0))
    assert shifted.min() == 0.0
    assert 0.4 < (shifted == 0.0).mean() < 0.6


def test_wide_gaps_survive_small_errors_and_not_large_ones() -> None:
    """Shares 4, 3, 2, 1 of 10: errors up to 0.01 change nothing, errors of 0.5 change some of the labels."""
    estimator = PopularityEstimator(np.array([3, 2, 1, 0]))
    changes = measure_label_changes(
        estimator,
        asked_for([0, 1, 2, 3] * 20),
        name="popularity",
        tree=TREE,
        seed=0,
        thresholds=(1e-7, 1e-2, 0.5),
    )
    assert softmax(estimator.scores(np.zeros((1, 1), dtype=np.int32)))[0] == pytest.approx([0.4, 0.3, 0.2, 0.1])
    small, middle, large = changes.changes
    assert (small.changed.mean, middle.changed.mean) == (0.0, 0.0)
    assert 0.1 < large.changed.mean < 0.5
    assert large.by_level[1] == 0.0, "the leaf level is positive whatever happens"
    assert large.changed_per_target.mean == pytest.approx(2 * large.changed.mean)
    assert changes.positive == (0.5, 1.0)
    assert changes.median_target_probability == pytest.approx(0.25)
    assert changes.mean_probability == 0.25


def test_equal_probabilities_are_decided_by_the_least_error() -> None:
    """Among equals the target counts as best; any noise, however small, lets it lose half the time."""
    changes = measure_label_changes(
        PopularityEstimator(np.array([1, 1, 1, 1])),
        asked_for([1] * 200),
        name="popularity",
        tree=TREE,
        seed=0,
        thresholds=(1e-4,),
    )
    # On level 1 the sibling is +L while the target is -L in a quarter of the cases.
    assert changes.changes[0].by_level[0] == pytest.approx(0.25, abs=0.1)
