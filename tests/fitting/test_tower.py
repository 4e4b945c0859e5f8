"""Fits with a tower: the encoder is learned first, stands in the tree, and is weighed beside the other parts."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree.artefact import Artefact, load_artefact, save_artefact
from beamtree.config import Config
from beamtree.data.dataset import Dataset, prepare_dataset
from beamtree.data.split import split_users
from beamtree.errors import InterruptedTraining
from beamtree.evaluation.protocol import held_out_requests
from beamtree.fitting.fit import fit_model
from beamtree.fitting.run import WorkDirectory
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.training.events import ESTIMATOR, TREE_MODEL, Event, PartsWeighed, StepDone
from tests.small import assert_same_bytes, small_config, two_group_log

ENCODER: dict[str, Any] = {"width": 8, "layers": 1, "epochs": 3, "dropout": 0.0}
LOG = two_group_log(users_per_group=60, items_per_group=25)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return prepare_dataset(LOG, min_interactions=2)


def config_of(*parts: str, **sections: dict[str, Any]) -> Config:
    sections["model"] = {"embedding_dim": 4, "windows": [2, 2, 1], "parts": parts, **sections.get("model", {})}
    return small_config(estimator=ENCODER | sections.pop("estimator", {}), **sections)


def fit(dataset: Dataset, config: Config, **options: Any) -> Artefact:
    split = split_users(dataset.sequences, seed=3, validation_share=0.3)
    everything: dict[str, Any] = {"work": None, "listen": lambda _: None, "should_stop": lambda: False} | options
    return fit_model(dataset, split, config=config, **everything)


@pytest.mark.parametrize("parts", [("tower",), ("tower", "memory"), ("attention", "tower", "memory")])
def test_a_model_has_the_parts_that_were_asked_for(dataset: Dataset, parts: tuple[str, ...]) -> None:
    events: list[Event] = []
    artefact = fit(dataset, config_of(*parts), listen=events.append)
    assert {name.split("/")[0] for name in artefact.weights} == set(parts)
    learners = [event.learner for event in events if isinstance(event, StepDone)]
    assert ESTIMATOR in learners
    assert (TREE_MODEL in learners) == ("attention" in parts)
    weighed = [event for event in events if isinstance(event, PartsWeighed)]
    assert len(weighed) == 1
    assert weighed[0].is_calibrated
    assert weighed[0].metric == artefact.training["weighing"]["validation"] > 0.1
    if parts == ("tower", "memory"):
        assert weighed[0].weights["model.weights.tower"] == 1.0


def test_the_tower_scores_leaves_as_the_encoder_scores_items_and_the_beam_follows(dataset: Dataset) -> None:
    artefact = fit(dataset, config_of("tower"))
    split = split_users(dataset.sequences, seed=3, validation_share=0.3)
    requests = held_out_requests(dataset, split.validation, exclude_seen=True)
    engine = Engine(build_scorer(artefact.weights, artefact.tree, config=artefact.config), artefact.tree)
    beam, scan = engine.search(requests, k=5, beam_width=12), engine.scan(requests, k=5)
    found = np.mean([len({*ours} & {*theirs}) / 5 for ours, theirs in zip(beam.items, scan.items, strict=True)])
    assert found > 0.9


def test_a_saved_model_with_a_tower_gives_the_same_answers(dataset: Dataset, tmp_path: Path) -> None:
    artefact = fit(dataset, config_of("tower", "memory"))
    save_artefact(tmp_path / "model", artefact)
    loaded = load_artefact(tmp_path / "model")
    assert_same_bytes({**loaded.weights}, {**artefact.weights})
    split = split_users(dataset.sequences, seed=3, validation_share=0.3)
    requests = held_out_requests(dataset, split.test, exclude_seen=True)
    answers = [
        Engine(build_scorer(some.weights, some.tree, config=some.config), some.tree).search(requests, k=4, beam_width=9)
        for some in (artefact, loaded)
    ]
    assert (answers[0].items == answers[1].items).all()


def test_the_same_seed_gives_the_same_bytes_also_when_resumed(dataset: Dataset, tmp_path: Path) -> None:
    config = config_of("tower", "memory", training={"checkpoint_minutes": 0.0})
    whole = fit(dataset, config)
    steps: list[Event] = []
    half = whole.training  # the encoder's steps are not reported there: count them as they come
    assert half["steps"] == 0

    def is_enough() -> bool:
        return sum(isinstance(event, StepDone) for event in steps) >= 2

    begun, resumed = WorkDirectory(tmp_path, resume=False), WorkDirectory(tmp_path, resume=True)
    with pytest.raises(InterruptedTraining):
        fit(dataset, config, work=begun, listen=steps.append, should_stop=is_enough)
    again = fit(dataset, config, work=resumed)
    assert_same_bytes({**again.weights}, {**whole.weights})


def test_attention_on_the_leaves_alone_is_learned_beside_a_tower_and_resumed_to_the_same_bytes(
    dataset: Dataset, tmp_path: Path
) -> None:
    config = config_of("attention", "tower", "memory", model={"attention_levels": 1}, training={"validations": 2})
    whole = fit(dataset, config)
    assert whole.training["rounds"][0]["validation"]["f@20"] > 0.1, "by a scan of the leaves"
    assert whole.training["weighing"]["validation"] > 0.1
    seen: list[Event] = []

    def is_enough() -> bool:
        return sum(isinstance(event, StepDone) and event.learner == TREE_MODEL for event in seen) >= 30

    begun, resumed = WorkDirectory(tmp_path, resume=False), WorkDirectory(tmp_path, resume=True)
    with pytest.raises(InterruptedTraining):
        fit(dataset, config, work=begun, listen=seen.append, should_stop=is_enough)
    again = fit(dataset, config, work=resumed)
    assert_same_bytes({**again.weights}, {**whole.weights})


def test_told_weights_are_kept(dataset: Dataset) -> None:
    config = config_of("tower", "memory", model={"weights": {"tower": 0.25, "transitions": 0.5, "company": 0.0}})
    artefact = fit(dataset, config)
    assert float(artefact.weights["tower/weight"]) == 0.25
    assert artefact.training["weighing"]["memory"]["transitions"] == 0.5


def test_the_tree_is_learned_with_rectified_labels_of_the_same_encoder(dataset: Dataset) -> None:
    training = {"method": "dtr-t-rl", "rounds": 2, "negatives": 3}
    events: list[Event] = []
    artefact = fit(dataset, config_of("attention", "tower", training=training), listen=events.append)
    first_steps = [event.learner for event in events if isinstance(event, StepDone) and event.step == 1]
    assert first_steps == [ESTIMATOR, TREE_MODEL, TREE_MODEL], "one encoder, two rounds"
    assert len(artefact.training["rounds"]) == 2
    assert {name.split("/")[0] for name in artefact.weights} == {"attention", "tower"}
