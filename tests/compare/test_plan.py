"""Which fits a comparison has: systems, variants of the default, seeds and folds."""

from typing import Any

import pytest

from beamtree.compare.ours import Preset
from beamtree.compare.plan import plan_tasks
from beamtree.compare.systems import SYSTEMS
from beamtree.compare.task import Task
from beamtree.config import Config
from beamtree.errors import InputError, SettingsError


def planned(*assignments: str, **options: Any) -> list[Task]:
    given: dict[str, Any] = {"systems": ["beamtree", "ease"], "seeds": [0], "budget_seconds": None, "cutoffs": (20,)}
    return plan_tasks("log.csv", None, config=Config.load(assignments=assignments), **given | options)


def test_every_system_and_variant_with_every_seed_on_every_fold() -> None:
    tasks = planned(seeds=[0, 4], folds=2, variants={"wide": ["estimator.width=128", "training.rounds=2"]})
    assert [task.name for task in tasks[:4]] == [
        "beamtree-seed0-fold1of2",
        "ease-seed0-fold1of2",
        "wide-seed0-fold1of2",
        "beamtree-seed0-fold2of2",
    ]
    assert len({task.key for task in tasks}) == len(tasks) == 12
    assert [Task.from_text(task.text()) for task in tasks] == tasks
    made = SYSTEMS[tasks[2].system].changed(tasks[2].changes).entry.make()
    assert made == Preset(settings={"estimator": {"width": 128}, "training": {"rounds": 2}})
    assert [task.key for task in planned()] == [task.key for task in planned(variants={"wide": []})[:2]]


def test_what_would_not_be_comparable_is_refused() -> None:
    for setting in ("data.protocol=paper", "retrieval.exclude_seen=false", "training.seed=3"):
        with pytest.raises(InputError, match="not for 'other'"):
            planned(variants={"other": [setting]})
    with pytest.raises(InputError, match="a system 'ease' already"):
        planned(variants={"ease": ["estimator.width=8"]})
    with pytest.raises(SettingsError, match="wings is unknown"):
        planned(variants={"other": ["estimator.wings=2"]})
    with pytest.raises(InputError, match="holdout is 'last'"):
        planned("data.holdout=last", folds=3)
