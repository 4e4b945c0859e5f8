"""Explanations of a counted memory that was worked out by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact
from beamtree.config import MemorySettings
from beamtree.data.split import Spans
from beamtree.errors import UnknownIdsError
from beamtree.model.memory import Memory, MemoryWeights
from beamtree.model.score import build_score
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.retrieval.tables import recommend_histories, similar_items
from tests.model.test_new_part import PARTS, make_taste
from tests.serving.models import random_artefact
from tests.small import sequences_of

WEIGHT = 2.0
GATE = 3.0


@pytest.fixture(scope="module")
def artefact() -> Artefact:
    """Five items; 101 followed 100 three times and 103 once, 102 followed 100 once. Only the next item counts."""
    sequences = sequences_of([[0, 1], [0, 1], [0, 1], [3, 1], [0, 2]])
    spans = Spans(np.arange(5, dtype=np.int32), sequences.offsets[:-1], sequences.offsets[1:])
    counted = Memory.count(sequences, spans, num_items=5, settings=MemorySettings(window=1))
    weights = MemoryWeights(transitions=WEIGHT, repeats=0.0, popularity=0.0, fade=0.5)
    plain = random_artefact(5)
    memory = replace(counted, weights=weights, gates=(1.0,) * plain.tree.height + (GATE,))
    arrays = {**plain.weights} | {f"memory/{name}": array for name, array in memory.arrays().items()}
    titles = plain.item_table.with_columns(title=pl.Series(["Zero", "One", "Two", None, "Four"]))
    return Artefact(**(vars(plain) | {"weights": arrays, "item_table": titles}))


def test_memory_names_the_items_that_a_recommendation_comes_from(artefact: Artefact) -> None:
    """The latest item counts whole, the one before it half."""
    [explained] = Recommender(artefact).explain([102, 100, 103], [101])
    once, thrice = WEIGHT * GATE * np.log(2), WEIGHT * GATE * 0.5 * np.log(4)
    assert [(one.item_id, one.title) for one in explained.because_of] == [(100, "Zero"), (103, None)]
    assert [one.strength for one in explained.because_of] == pytest.approx([thrice, once], rel=1e-3)
    assert explained.parts["memory"] == pytest.approx(once + thrice, rel=1e-3)
    assert explained.score == pytest.approx(explained.parts["attention"] + explained.parts["memory"])


def test_what_nobody_points_to_has_no_reasons(artefact: Artefact) -> None:
    [explained] = Recommender(artefact).explain([100], [104])
    assert (explained.because_of, explained.parts["memory"]) == ((), 0.0)
    with pytest.raises(UnknownIdsError, match="does not know the item 7"):
        Recommender(artefact).explain([100], [7])


def test_explanations_come_with_recommendations_when_asked_for(artefact: Artefact) -> None:
    recommender = Recommender(artefact)
    plain, explained, cold = recommender.recommend(
        [
            RecommendRequest(history=[100], options=RecommendOptions(k=4)),
            RecommendRequest(history=[100], options=RecommendOptions(k=4, explain=True)),
            RecommendRequest(history=[], options=RecommendOptions(k=4, explain=True)),
        ]
    )
    assert (plain.items, plain.explanations, cold.explanations) == (explained.items, None, None)
    assert explained.explanations is not None
    assert [one.item_id for one in explained.explanations] == explained.items
    assert [one.score for one in explained.explanations] == pytest.approx(explained.scores, rel=1e-5)


def test_a_table_shows_the_parts_and_the_reasons(artefact: Artefact) -> None:
    recommender = Recommender(artefact)
    table = recommend_histories(recommender, [[100, 103], []], options=RecommendOptions(k=3, explain=True))
    assert table.columns == ["request", "item_id", "score", "rank", "attention", "memory", "because_of"]
    found = table.filter(pl.col("request") == 0)
    assert (found["attention"] + found["memory"]).to_list() == pytest.approx(found["score"].to_list(), rel=1e-5)
    assert found.filter(pl.col("item_id") == 101)["because_of"].to_list() == [[100, 103]]
    popular = table.filter(pl.col("request") == 1)
    assert [popular[name].null_count() for name in ("attention", "memory", "because_of")] == [3, 3, 3]


def test_similar_items_as_a_table(artefact: Artefact) -> None:
    recommender = Recommender(artefact)
    table = similar_items(recommender, [100, 101], k=2, by="memory")
    assert table.select("item_id", "similar_id", "rank").rows() == [(100, 101, 1), (100, 102, 2)]
    assert len(similar_items(recommender, [100, 101], k=2, by=None)) == 4
    with pytest.raises(UnknownIdsError, match="does not know the item 7"):
        similar_items(recommender, [100, 7], k=2, by=None)


def test_a_part_that_only_torch_knows_has_its_share_too() -> None:
    plain = random_artefact(12)
    score = build_score(plain.config, plain.tree, seed=5, parts=PARTS)
    learned = replace(plain, weights=score.arrays())
    recommender = Recommender(learned, parts={"taste": make_taste})
    request = RecommendRequest(history=[100, 103], options=RecommendOptions(k=5, explain=True))
    [answer] = recommender.recommend([request])
    assert answer.explanations is not None
    assert all(one.parts.keys() == {"attention", "taste"} for one in answer.explanations)
    assert [sum(one.parts.values()) for one in answer.explanations] == pytest.approx(answer.scores, rel=1e-4, abs=1e-5)
