"""What each part of a score contributes: the numbers of separate evaluations, and sentences that say what they mean."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact
from beamtree.data.interactions import InteractionLog
from beamtree.data.split import HeldOut
from beamtree.diagnostics.contributions import (
    MAX_USERS,
    Contributions,
    chosen_parts,
    measure_contributions,
    num_contribution_searches,
    popular_items,
    sample_users,
)
from beamtree.diagnostics.diagnose import diagnose, examine
from beamtree.diagnostics.part_sections import parts_section
from beamtree.diagnostics.report import Diagnostics
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.metrics import Metrics
from beamtree.evaluation.protocol import evaluate
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.types import AnyArray
from tests.small import small_config, two_group_log

SHORT, LONG = (two_group_log(users_per_group=40, items_per_group=25, length=length).frame for length in (10, 18))
LOG = InteractionLog(pl.concat([SHORT, LONG.with_columns(pl.col("user_id") + "-long")]))
ESTIMATOR = {"width": 8, "layers": 1, "epochs": 2}


@pytest.fixture(scope="module")
def model() -> DeepTreeRetriever:
    data = {"min_interactions": 2, "min_held_out": 2, "held_out_shares": (0.1, 0.3)}
    return DeepTreeRetriever(small_config(model={"parts": ["tower", "memory"]}, estimator=ESTIMATOR, data=data)).fit(
        LOG
    )


@pytest.fixture(scope="module")
def found(model: DeepTreeRetriever) -> Contributions:
    return contributions_of(model, model.recommender.artefact)


@pytest.fixture(scope="module")
def diagnostics(model: DeepTreeRetriever) -> Diagnostics:
    return diagnose(examine(model, LOG, users=100, group="test", seed=0), None)


def contributions_of(model: DeepTreeRetriever, artefact: Artefact) -> Contributions:
    steps: list[int] = []
    found = measure_contributions(artefact, model.dataset, model.held_out(), seed=0, advance=steps.append)
    assert found is not None
    assert sum(steps) == num_contribution_searches(artefact, users=len(model.held_out()))
    return found


def with_weights(artefact: Artefact, weights: dict[str, AnyArray]) -> Artefact:
    return replace(artefact, weights=weights)


def evaluated(model: DeepTreeRetriever, *parts: str) -> Metrics:
    """The model's held-out users, asked of a score of these parts."""
    artefact = model.recommender.artefact
    weights = {name: array for name, array in artefact.weights.items() if name.split("/")[0] in parts}
    engine = Engine(build_scorer(weights, artefact.tree, config=artefact.config), artefact.tree)
    search = BeamSearch(engine, model.config.retrieval.beam_width)
    return evaluate(search, model.dataset, model.held_out(), config=model.config, cutoffs=(20,))


def test_each_score_is_what_an_evaluation_of_it_says(model: DeepTreeRetriever, found: Contributions) -> None:
    everybody = found.everybody
    memory, tower = everybody.parts
    assert (memory.part, tower.part) == found.parts == ("memory", "tower")
    expected = {part: evaluated(model, part) for part in found.parts}
    whole = evaluated(model, "memory", "tower")
    assert len({metrics["ndcg@20"] for metrics in (whole, *expected.values())}) == 3, "three scores that differ"
    assert everybody.users == whole.num_users
    for quality, metrics in (
        (everybody.whole, whole),
        *((part.alone, expected[part.part]) for part in everybody.parts),
    ):
        assert quality.f.mean == pytest.approx(metrics["f@20"])
        assert quality.ndcg.mean == pytest.approx(metrics["ndcg@20"])
    assert (memory.without, tower.without) == (tower.alone, memory.alone)
    for part in everybody.parts:
        assert part.ndcg_gain.mean == pytest.approx(everybody.whole.ndcg.mean - part.without.ndcg.mean)
        assert part.ndcg_gain.low < part.ndcg_gain.mean < part.ndcg_gain.high


def test_groups_are_split_by_history_and_by_label(model: DeepTreeRetriever, found: Contributions) -> None:
    users = {group.group: group.users for group in found.groups}
    reachable = reachable_labels(model.held_out(), model.dataset.sequences, config=model.config)
    lengths = reachable.users.history_end - reachable.users.history_start
    assert found.median_history == np.median(lengths)
    assert users["short histories"] == (lengths <= found.median_history).sum()
    assert users["short histories"] + users["long histories"] == users["all users"] == len(lengths)
    is_popular = popular_items(model.recommender.artefact.popularity)
    assert found.popular_items == is_popular.sum()
    items, offsets = reachable.labels
    of_user = [is_popular[items[first:end]] for first, end in pairwise(offsets)]
    assert users["popular labels"] == sum(labels.any() for labels in of_user)
    assert users["rare labels"] == sum((~labels).any() for labels in of_user)


def test_popular_items_are_the_fewest_that_make_up_half() -> None:
    assert popular_items(np.array([1, 5, 2, 2])).tolist() == [False, True, False, False]
    assert popular_items(np.array([3, 3, 2, 2])).tolist() == [True, True, False, False]
    assert popular_items(np.array([2, 2, 2])).tolist() == [True, True, False]


def test_scores_are_compared_once_each() -> None:
    assert [sorted(chosen) for chosen in chosen_parts(("a", "b"))] == [["a", "b"], ["a"], ["b"]]
    three = [sorted(chosen) for chosen in chosen_parts(("a", "b", "c"))]
    assert three == [["a", "b", "c"], ["a"], ["b"], ["c"], ["b", "c"], ["a", "c"], ["a", "b"]]


def test_at_most_so_many_users_are_asked(model: DeepTreeRetriever) -> None:
    few = model.held_out()
    assert sample_users(few, seed=0) is few
    many = few.take(np.arange(1200) % len(few))
    numbered = HeldOut(**(vars(many) | {"user": np.arange(1200, dtype=np.int32)}))
    sampled = [sample_users(numbered, seed=seed).user.tolist() for seed in (0, 0, 1)]
    assert sampled[0] == sampled[1] != sampled[2]
    assert len(set(sampled[0])) == MAX_USERS
    assert sampled[0] == sorted(sampled[0])


def test_a_single_part_has_nothing_to_be_compared_with(model: DeepTreeRetriever) -> None:
    artefact = model.recommender.artefact
    counted = with_weights(artefact, {n: array for n, array in artefact.weights.items() if n.startswith("memory/")})
    assert measure_contributions(counted, model.dataset, model.held_out(), seed=0) is None
    assert num_contribution_searches(counted, users=100) == 0


def test_a_part_that_changes_nothing_is_named(model: DeepTreeRetriever, diagnostics: Diagnostics) -> None:
    artefact = model.recommender.artefact
    silent = with_weights(artefact, {**artefact.weights, "tower/weight": np.array(0.0, dtype=np.float32)})
    found = contributions_of(model, silent)
    section = parts_section(replace(diagnostics, parts=found))
    assert section is not None
    said = section.reading
    assert "Leaving out tower has no significant effect" in said
    assert "Without memory, F@20 falls by" in said or "NDCG@20 falls by" in said
    assert "Tower helps most" not in said
    assert all(level.spread["tower"].mean == 0.0 for level in found.levels if level.spread["tower"] is not None)
    assert all(level.recall_without["tower"] == level.recall for level in found.levels)


def test_few_users_say_nothing(diagnostics: Diagnostics) -> None:
    assert diagnostics.parts is not None
    few = tuple(replace(group, users=5) for group in diagnostics.parts.groups)
    section = parts_section(replace(diagnostics, parts=replace(diagnostics.parts, groups=few)))
    assert section is not None
    assert "5 users are too few" in section.reading
    assert "changes nothing" not in section.reading


def test_the_report_has_every_part_in_numbers_and_words(diagnostics: Diagnostics, found: Contributions) -> None:
    assert diagnostics.parts == found
    assert diagnostics.labels is None
    section = parts_section(diagnostics)
    assert section is not None
    metrics, levels = section.tables
    assert len(metrics.rows) == 3 * len(found.groups)
    assert [row[1] for row in metrics.rows[:3]] == ["whole score", "without memory", "without tower"]
    assert f"{found.everybody.whole.f.mean:.4f}" in section.reading
    assert [row[0] for row in levels.rows] == [str(level.level) for level in found.levels]
    assert all(len(row) == len(levels.header) for row in levels.rows)
