"""Beam search against the exact scan: what must agree, and what is counted."""

import numpy as np
import pytest

from beamtree.diagnostics.averages import Average
from beamtree.diagnostics.beams import (
    BeamComparison,
    BeamResult,
    beam_widths,
    compare_beams,
    num_scanned_users,
    overlaps,
    scored_nodes,
)
from beamtree.diagnostics.headlines import narrowest_enough
from beamtree.recommender import DeepTreeRetriever
from beamtree.tree.build import plant
from tests.small import ragged, random_tree, small_config, two_group_log


@pytest.fixture(scope="module")
def model() -> DeepTreeRetriever:
    """Forty items, so that the top 20 is a choice; hardly trained, from a random start: narrow beams miss some."""
    training = {"negatives": 3, "epochs": 0.3, "batch_size": 16, "learning_rate": 0.01}
    config = small_config(training=training, model={"embedding_init": "random", "parts": ["attention"]})
    return DeepTreeRetriever(config).fit(two_group_log(items_per_group=25, length=12))


def test_a_beam_as_wide_as_the_leaves_loses_nothing(model: DeepTreeRetriever) -> None:
    artefact = model.recommender.artefact
    leaves = artefact.tree.num_leaves
    steps: list[int] = []
    found = compare_beams(artefact, model.dataset, model.held_out(), widths=(2, 10_000), advance=steps.append)
    narrow, wide = found.results
    assert (narrow.width, wide.width) == (2, leaves)
    assert wide.overlap.mean == 1.0
    assert wide.lost_f.mean == 0.0
    assert wide.f.mean == found.scan_f.mean
    assert wide.scored_nodes == leaves
    assert narrow.overlap.mean < 1.0
    assert narrow.lost_f.mean == pytest.approx(found.scan_f.mean - narrow.f.mean)
    assert found.users == len(model.held_out())
    assert sum(steps) == 3 * found.users


def test_overlap_counts_what_the_scan_found() -> None:
    exact = np.array([[1, 2, 3, 4], [5, 6, -1, -1], [-1, -1, -1, -1]], dtype=np.int32)
    found = np.array([[4, 3, 9, 8], [6, 7, -1, -1], [1, -1, -1, -1]], dtype=np.int32)
    assert overlaps(found, exact).tolist() == [0.5, 0.5, 1.0]


def test_no_beam_is_wider_than_the_leaves() -> None:
    assert beam_widths(random_tree(120, branching=2, seed=0)) == [20, 50, 100, 120]
    assert beam_widths(random_tree(10, branching=2, seed=0)) == [10]


def test_scored_nodes_by_hand() -> None:
    """Sixteen leaves, beam 2: the 4 nodes of level 2, then 4 of 8, then 4 of 16; excluding one leaf makes the beam 3,
    which scores 4, 6 and 6; excluding five makes it 4, which starts at the 8 nodes of level 3 and goes on to 8."""
    tree = plant(np.arange(16, dtype=np.int32), branching=2)
    assert scored_nodes(tree, width=2, excluded=None).tolist() == [12.0]
    excluded = ragged([[], [3], [1, 2, 3, 4, 5]])
    assert scored_nodes(tree, width=2, excluded=excluded).tolist() == [12.0, 16.0, 16.0]


def test_fewer_users_are_scanned_where_the_catalogue_is_huge(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = random_tree(100, branching=2, seed=0)
    assert num_scanned_users(tree, users=200) == 200
    monkeypatch.setattr("beamtree.diagnostics.beams.MAX_SCANNED_LEAVES", 5_000)
    assert num_scanned_users(tree, users=200) == 50
    monkeypatch.setattr("beamtree.diagnostics.beams.MAX_SCANNED_LEAVES", 50)
    assert num_scanned_users(tree, users=200) == 10


def test_a_beam_is_enough_only_if_all_wider_ones_are() -> None:
    """F@20 of the scan is 0.5, so 0.005 may be lost: beam 1 is within by luck, beam 2 is not, beams 3 and 4 are."""

    def comparison(*lost: float) -> BeamComparison:
        share = Average(1.0, 0.0)
        results = [BeamResult(width, share, share, Average(loss, 0.001), 1.0) for width, loss in enumerate(lost, 1)]
        return BeamComparison(1, 9, 4, Average(0.5, None), tuple(results))

    found = narrowest_enough(comparison(0.0, 0.1, 0.004, -0.2))
    assert found is not None
    assert found.width == 3
    assert narrowest_enough(comparison(0.0, 0.1)) is None
