"""What requests cost, on a tree of sixteen leaves with a beam of two nodes."""

from typing import Any

import pytest

from beamtree.serving.loaded_model import LoadedModel, assemble
from beamtree.serving.schemas.recommend_body import Recommend
from beamtree.serving.work import EXPLAINED, ITEMS_A_NODE, works_of
from tests.serving.models import TINY, random_artefact

USUAL = 3 * 4
"""A beam of two keeps the two nodes of level 1 whole, and scores four children on each of the levels 2, 3 and 4."""


@pytest.fixture(scope="module")
def model() -> LoadedModel:
    return assemble(random_artefact(16, settings=TINY | {"retrieval": {"beam_width": 2, "exclude_seen": False}}))


@pytest.mark.parametrize(
    ("asked", "nodes"),
    [
        ({}, USUAL),
        ({"k": 1, "beam": 1}, USUAL),
        ({"beam": 4}, 2 * 8),
        ({"k": 4}, 2 * 8),
        ({"beam": 100}, 16),
        ({"beam": 4, "exclude": [100]}, 8 + 10),
        ({"exclude_seen": True}, 2 * 8),
        ({"explain": True}, USUAL * EXPLAINED),
        ({"allow": {"where": [{"column": "year", "at_least": 1960}] * 3}}, USUAL + 3 * 16 / ITEMS_A_NODE),
    ],
)
def test_work_counts_the_nodes_that_a_beam_scores(model: LoadedModel, asked: dict[str, Any], nodes: float) -> None:
    request = Recommend(**({"history": [100, 101, 102], "k": 1} | asked))
    assert works_of(model, [request]) == [pytest.approx(nodes / USUAL)]


def test_work_is_told_for_each_request(model: LoadedModel) -> None:
    requests = [Recommend(history=[100], k=1), Recommend(history=[100], k=1, beam=4), Recommend(user_id=1, k=1)]
    assert works_of(model, requests) == [1.0, pytest.approx(16 / 12), 1.0]
