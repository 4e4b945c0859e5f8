"""Explanations of a counted memory that was worked out by hand."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from beamtree.artefact import Artefact
from beamtree.data.split import Spans
from beamtree.errors import UnknownIdsError
from beamtree.model.memory import Memory, MemoryWeights
from beamtree.model.score import build_score
from beamtree.retrieval.explain import MAX_LEFT_OUT, MAX_REASONS
from beamtree.retrieval.recommender import Recommender
from beamtree.retrieval.request import Explanation, RecommendOptions, RecommendRequest
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
    counted = Memory.count(sequences, spans, num_items=5, window=1)
    weights = MemoryWeights(transitions=WEIGHT, repeats=0.0, popularity=0.0, fade=0.5)
    plain = random_artefact(5)
    memory = replace(counted, weights=weights, gates=(1.0,) * plain.tree.height + (GATE,))
    arrays = {**plain.weights} | {f"memory/{name}": array for name, array in memory.arrays().items()}
    titles = plain.item_table.with_columns(title=pl.Series(["Zero", "One", "Two", None, "Four"]))
    return Artefact(**(vars(plain) | {"weights": arrays, "item_table": titles}))


def parts_of(explained: Explanation) -> list[str]:
    return [one.part for one in explained.because_of]


def test_memory_names_the_items_that_a_recommendation_comes_from(artefact: Artefact) -> None:
    """The latest item counts whole, the one before it half."""
    [explained] = Recommender(artefact).explain([102, 100, 103], [101])
    once, thrice = WEIGHT * GATE * np.log(2), WEIGHT * GATE * 0.5 * np.log(4)
    assert [(one.item_id, one.title) for one in explained.because_of] == [(100, "Zero"), (103, None)]
    assert parts_of(explained) == ["memory", "memory"]
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
    assert table.columns == ["request", "item_id", "score", "rank", "attention", "memory", "because_of", "reason_parts"]
    found = table.filter(pl.col("request") == 0)
    assert (found["attention"] + found["memory"]).to_list() == pytest.approx(found["score"].to_list(), rel=1e-5)
    assert found.filter(pl.col("item_id") == 101)["because_of"].to_list() == [[100, 103]]
    assert found.filter(pl.col("item_id") == 101)["reason_parts"].to_list() == [["memory", "memory"]]
    popular = table.filter(pl.col("request") == 1)
    assert [popular[name].null_count() for name in ("attention", "memory", "because_of", "reason_parts")] == [3] * 4


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


def test_the_tower_owes_to_an_item_what_it_loses_without_it() -> None:
    """Read are the latest six items; 105 stands in the history twice, and leaving it out leaves out both."""
    recommender = Recommender(random_artefact(30, parts=("tower",)))
    history = [101, 102, 103, 105, 104, 105, 106, 107]

    def score(read: list[int], item: int) -> float:
        return recommender.explain(read, [item])[0].parts["tower"]

    for item in (110, 117, 125):
        [explained] = recommender.explain(history, [item])
        lost = {
            left_out: score(history, item) - score([one for one in history if one != left_out], item)
            for left_out in set(history)
        }
        expected = sorted((left_out for left_out in lost if lost[left_out] > 0), key=lambda one: -lost[one])
        assert [one.item_id for one in explained.because_of] == expected[:MAX_REASONS]
        strengths = [one.strength for one in explained.because_of]
        assert strengths == pytest.approx([lost[one] for one in expected[:MAX_REASONS]], abs=1e-6)
        assert set(parts_of(explained)) <= {"tower"}
        assert {101, 102}.isdisjoint(expected), "what is not read cannot be missed"


def test_the_tower_gives_reasons_where_memory_has_none() -> None:
    """Each item of a history is named once, through the part where it is strongest, all in one order."""
    both = random_artefact(300, parts=("memory", "tower"))
    counted = replace(both, weights={name: both.weights[name] for name in both.weights if name.startswith("memory/")})
    history, items = [112, 140, 131], list(range(100, 160))
    explained = Recommender(both).explain(history, items)
    without = Recommender(counted).explain(history, items)
    assert {part for one in explained for part in parts_of(one)} == {"memory", "tower"}
    assert any(one.because_of and not counted.because_of for one, counted in zip(explained, without, strict=True))
    for one in explained:
        reasons = [reason.item_id for reason in one.because_of]
        assert len(set(reasons)) == len(reasons)
        assert set(reasons) <= set(history)
        strengths = [reason.strength for reason in one.because_of]
        assert strengths == sorted(strengths, reverse=True)


def test_only_the_latest_items_are_left_out() -> None:
    """A tower that reads forty items is asked about twenty of them."""
    plain = random_artefact(60, parts=("tower",))
    recency = np.zeros((2, 40), dtype=np.float32)
    weights = {**plain.weights, "tower/encoder.layers.0.recency": recency}
    recommender = Recommender(replace(plain, weights=weights))
    history = list(range(100, 140))
    reasons = {
        reason.item_id for one in recommender.explain(history, list(range(140, 160))) for reason in one.because_of
    }
    assert reasons
    assert reasons <= set(history[-MAX_LEFT_OUT:])
