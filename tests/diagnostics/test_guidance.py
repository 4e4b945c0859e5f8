"""How parts lead a beam, in a tree small enough to draw."""

import numpy as np
import pytest

from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.diagnostics.guidance import measure_guidance, spread_shares
from beamtree.tree.build import plant
from beamtree.types import Float32Array, Int64Array
from tests.small import ragged


class LevelScores:
    """Scores of whole levels, from level 1 on, the same for every request."""

    def __init__(self, *levels: list[float]) -> None:
        self.levels = [np.array(scores, dtype=np.float32) for scores in levels]

    def prepare(self, requests: Requests) -> "LevelScores":
        del requests
        return self

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        del request
        return self.levels[level - 1][nodes]


TREE = plant(np.arange(8, dtype=np.int32), branching=2)
ALIKE = [0.0] * 8


def test_a_level_drops_what_no_part_points_to() -> None:
    """A beam of two. The guide keeps nodes 0 and 3 of level 2, and with them the leaves 0, 1, 6, 7; without it the
    other part keeps nodes 0 and 1. The exact top two are the leaves 0 and 7."""
    guide = LevelScores([0.0, 0.0], [1.0, 0.0, 0.0, 2.0], [3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 4.0])
    other = LevelScores([0.0, 0.0], [0.4, 0.3, 0.2, 0.1], ALIKE)
    done: list[int] = []
    second, third = measure_guidance(
        TREE,
        {"guide": guide, "other": other},
        Requests(Histories.of_lists([[0], []])),
        exact=np.array([[0, 7], [7, -1]], dtype=np.int32),
        beam_width=2,
        k=2,
        advance=done.append,
    )
    assert ((second.level, second.nodes), (third.level, third.nodes)) == ((2, 4), (3, 8))
    assert (second.recall.mean, third.recall.mean) == (1.0, 1.0)
    # Without the guide the first request keeps leaf 0 of two, the second none of its one.
    assert second.recall_without["guide"].mean == 0.25
    assert third.recall_without["guide"].mean == 0.25
    assert (second.recall_without["other"].mean, third.recall_without["other"].mean) == (1.0, 1.0)
    of_guide, of_other = second.spread["guide"], second.spread["other"]
    assert of_guide is not None
    assert of_other is not None
    wide, narrow = np.std([1.0, 0.0, 0.0, 2.0]), np.std([0.4, 0.3, 0.2, 0.1])
    assert of_guide.mean == pytest.approx(wide / (wide + narrow), rel=1e-5)
    assert of_guide.mean + of_other.mean == pytest.approx(1.0)
    assert third.spread["other"] is not None
    assert third.spread["other"].mean == 0.0
    assert sum(done) == 2


def test_excluded_leaves_are_not_looked_at() -> None:
    """Of eight leaves six are excluded: the beam of two looks at the other two, all levels above are passed over."""
    only = LevelScores([0.0, 0.0], [0.0] * 4, ALIKE)
    guide = LevelScores([1.0, 0.0], [1.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    [leaves] = measure_guidance(
        TREE,
        {"guide": guide, "only": only},
        Requests(Histories.of_lists([[0]]), excluded=Sequences(*ragged([[0, 1, 2, 3, 4, 5]]))),
        exact=np.array([[7, 6]], dtype=np.int32),
        beam_width=2,
        k=2,
        advance=lambda _: None,
    )
    assert leaves.level == 3
    assert leaves.recall.mean == leaves.recall_without["guide"].mean == 1.0


def test_parts_that_tell_nothing_apart_have_no_share() -> None:
    flat = LevelScores([0.5, 0.5]).scores
    shares = spread_shares({"flat": lambda level, nodes: flat(0, level, nodes)}, 1, np.arange(2))
    assert np.isnan(shares["flat"])
