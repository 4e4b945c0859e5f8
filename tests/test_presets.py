"""Every preset learns, with its own sizes and through all stages of its own method, on a log of a few dozen users."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from beamtree.config import PRESETS, Config, PresetName
from beamtree.data.prepare import prepare_log
from beamtree.evaluation.protocol import split_dataset
from beamtree.fitting.fit import fit_model
from beamtree.training.events import ESTIMATOR, TREE_MODEL, Event, PartsWeighed, StepDone, TreeRelearned
from tests.small import two_group_log

STEPS, BATCH_SIZE = 2, 12


@pytest.mark.parametrize("name", list(PRESETS))
def test_a_preset_learns_through_all_stages_of_its_method(name: PresetName) -> None:
    whole = Config.preset(name)
    rounds = min(whole.training.rounds, 2)
    shortened: dict[str, Any] = {
        "batch_size": BATCH_SIZE,
        "max_instances": STEPS * BATCH_SIZE,
        "schedule": {"validations": 1},
        "rounds": rounds,
    }
    config = Config.preset(name, training=shortened, estimator={"epochs": 1})
    log = two_group_log(items_per_group=120, length=40)
    categories = log.frame.select("item_id", category=pl.col("item_id").str.head(1)).unique(maintain_order=True)
    prepared = prepare_log(log, config=config, items=categories)
    dataset, config = prepared.dataset, prepared.config
    events: list[Event] = []
    artefact = fit_model(
        dataset,
        split_dataset(dataset, config=config),
        config=config,
        work=None,
        listen=events.append,
        should_stop=lambda: False,
    )
    learners = [event.learner for event in events if isinstance(event, StepDone)]
    learned_rounds = rounds if "attention" in whole.model.parts else 0
    assert learners.count(TREE_MODEL) == STEPS * learned_rounds
    assert sum(isinstance(event, TreeRelearned) for event in events) == rounds - 1
    assert sum(isinstance(event, PartsWeighed) for event in events) == bool({"memory", "tower"} & {*whole.model.parts})
    assert (ESTIMATOR in learners) == (whole.training.method == "dtr-t-rl" or "tower" in whole.model.parts)
    tree = artefact.tree
    assert tree.level_sizes[-2] > config.training.negatives + 1, "draws go down the tree"
    assert sorted(tree.item_at_leaf.tolist()) == list(range(len(dataset.items)))
    assert all(np.isfinite(array).all() for array in artefact.weights.values())
    assert len(artefact.training["rounds"]) == learned_rounds
    assert {name.split("/")[0] for name in artefact.weights} == set(whole.model.parts)
    assert all(0 < event.loss < 20 for event in events if isinstance(event, StepDone))
