"""Other placements: what embeddings start from, and that a stopped run goes on to the same bytes with them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beamtree.baselines.trees.tdm import rebuild_rows
from beamtree.errors import InterruptedTraining
from beamtree.fitting.run import WorkDirectory
from beamtree.training.events import Event
from beamtree.training.strategies import Strategies
from beamtree.tree.build import plant
from research.placement import ASSIGNMENTS, ROWS, placement_of
from tests.small import assert_same_bytes
from tests.training.test_rounds import config_of, fit, is_tree_step


def test_inner_vectors_are_rebuilt_from_the_items_below() -> None:
    """Items 0, 1, 2 go from leaves 0, 1, 2 to leaves 1, 2, 0; the fourth leaf is vacant and counts for nobody."""
    old, new = plant([0, 1, 2], branching=2, num_leaves=4), plant([2, 0, 1], branching=2, num_leaves=4)
    table = np.array([0, 0, 0, 3, 8, 1, 99], dtype=np.float32)[:, None]
    rebuilt = rebuild_rows(table, old, new)[:, 0]
    assert rebuilt.tolist() == [4.0, 2.0, 8.0, 1.0, 3.0, 8.0, 99.0]


def test_every_placement_has_a_name_of_its_own() -> None:
    names = {placement_of(assign, rows).name for assign in ASSIGNMENTS for rows in ROWS}
    assert len(names) == len(ASSIGNMENTS) * len(ROWS)
    assert placement_of("auction", "travel", stride=2).name == "auction, rows travel, stride 2"


@pytest.mark.parametrize(("assign", "rows"), [("regret", "rebuild"), ("score", "travel")])
def test_stopped_and_resumed_it_ends_with_the_same_bytes(tmp_path: Path, assign: str, rows: str) -> None:
    config = config_of(training={"method": "dtr-u", "rounds": 2})
    strategies = replace(Strategies.of(config), placement=placement_of(assign, rows))
    whole = fit(config, strategies=strategies)
    steps_seen = 0

    first_steps: int = whole.training["rounds"][0]["steps"]

    def stop_in_the_second_round(event: Event) -> bool:
        nonlocal steps_seen
        steps_seen += is_tree_step(event)
        return steps_seen == first_steps + 1

    with pytest.raises(InterruptedTraining):
        fit(
            config,
            work=WorkDirectory(tmp_path, resume=False),
            listen=stop_in_the_second_round,
            strategies=strategies,
        )
    resumed = fit(config, work=WorkDirectory(tmp_path, resume=True), strategies=strategies)
    assert_same_bytes(dict(resumed.weights), dict(whole.weights))
    assert resumed.training["rounds"][0]["moved_share"] == whole.training["rounds"][0]["moved_share"] > 0.0
