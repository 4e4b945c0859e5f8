"""Test users are asked once: what `fit` measured is what `evaluate` says right after it."""

import pytest

from beamtree import recommender
from beamtree.data.requests import Requests
from beamtree.evaluation.answers import BeamSearch
from beamtree.recommender import DeepTreeRetriever
from beamtree.retrieval.result import SearchResult
from tests.small import small_config, two_group_log


def test_evaluate_after_fit_does_not_search_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []

    class Counting(BeamSearch):
        def search(self, requests: Requests, *, k: int) -> SearchResult:
            searches.append(self.beam_width)
            return super().search(requests, k=k)

    monkeypatch.setattr(recommender, "BeamSearch", Counting)
    model = DeepTreeRetriever(small_config()).fit(two_group_log())
    width = model.config.retrieval.beam_width
    assert searches == [width]
    row = f"beam search ({width})"
    found = model.evaluate(exact=False)[row]
    assert searches == [width]
    assert dict(found) == model.recommender.artefact.metrics["test"]
    assert found.num_users == len(model.held_out())

    model.evaluate(exact=False, users="validation")
    model.evaluate(exact=False, beam_width=width + 1)
    assert searches == [width, width, width + 1], "other users or another beam are other questions"
    model.fit(two_group_log())
    assert searches == [width, width, width + 1, width], "what was fitted anew is measured anew"
