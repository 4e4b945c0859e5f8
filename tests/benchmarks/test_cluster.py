"""The benchmark of a cluster, as far as it goes without one."""

from pathlib import Path

import numpy as np

from benchmarks.cluster import measure_rows, random_log, trainer_of


def test_the_trainer_takes_as_many_steps_over_as_many_positions_as_asked(tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, items=20_000, positions=400, steps=3, listen=lambda _: None)
    assert trainer.schedule.total_steps == 3
    order = trainer.schedule.order
    lengths = [len(trainer.instances.batch(order.instances_of(step), epoch=0).inputs) for step in range(3)]
    assert abs(float(np.mean(lengths)) - 400) < 80
    assert set(trainer.learner.model_arrays()) > {"items"}


def test_a_row_costs_something() -> None:
    assert 0.0 < measure_rows(items=1000, rows=50, turns=2) < 1e6


def test_everybody_of_the_log_has_as_many_interactions() -> None:
    log = random_log(7, items=30, each=5)
    assert log["user_id"].value_counts()["count"].to_list() == [5] * 7
    assert log["item_id"].max() < 30  # type: ignore[operator]
