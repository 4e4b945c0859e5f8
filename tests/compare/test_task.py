"""What a task is called, and when a result of it counts again."""

from pathlib import Path
from typing import Any

import pytest

from beamtree.compare.systems import SYSTEMS
from beamtree.compare.task import Task, read_result, write_result
from beamtree.errors import InputError

PLAIN = Task("dtr-t", 0, log="log.csv", items=None, settings={}, budget_seconds=60.0, cutoffs=(20,))


def variant(**changes: Any) -> Task:
    return Task(
        "dtr-t",
        0,
        log="log.csv",
        items=None,
        settings={},
        budget_seconds=None,
        cutoffs=(20,),
        label="x",
        changes=changes,
    )


def test_the_key_of_a_plain_task_never_changes() -> None:
    """Results that were measured before variants existed are used again."""
    assert PLAIN.key == "25db763589fc45b2"


def test_variants_are_told_apart_and_come_back_from_their_text(tmp_path: Path) -> None:
    tasks = [PLAIN, variant(branching=4), variant(branching=6)]
    assert len({task.key for task in tasks}) == 3
    assert [Task.from_text(task.text()) for task in tasks] == tasks
    write_result(tmp_path, tasks[1], {"metrics": {}})
    kept = read_result(tmp_path, tasks[1])
    assert kept is not None
    assert (kept["system"], kept["label"], kept["changes"]) == ("dtr-t", "x", {"branching": 4})
    assert read_result(tmp_path, tasks[2]) is None, "another setting under the same name"


def test_a_label_names_the_files_and_changes_need_one() -> None:
    named = Task("dtr-t", 2, "log.csv", None, {}, None, (20,), label="dtr-t, branching 4", changes={"branching": 4})
    assert named.name == "dtr-t-branching-4-seed2"
    assert PLAIN.name == "dtr-t-seed0"
    with pytest.raises(ValueError, match="needs a label"):
        Task("dtr-t", 2, "log.csv", None, {}, None, (20,), changes={"branching": 4})


def test_changes_reach_the_system_its_recipe_and_its_sizes() -> None:
    made: Any = SYSTEMS["otm"].changed({"beam_width": 7, "learning_rates": [0.5], "embedding_dim": 12}).entry.make()
    assert (made.beam_width, made.recipe.learning_rates, made.recipe.sizes.embedding_dim) == (7, (0.5,), 12)
    assert SYSTEMS["otm"].changed({}) is SYSTEMS["otm"]
    with pytest.raises(InputError, match="otm has no 'wings' to change"):
        SYSTEMS["otm"].changed({"wings": 2}).entry.make()
    with pytest.raises(InputError, match="It has nothing"):
        SYSTEMS["popularity"].changed({"wings": 2}).entry.make()
