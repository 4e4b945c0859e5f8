"""Test users are asked once: what `fit` measured is what `evaluate` says right after it."""

from typing import Any

import pytest

from beamtree import recommender
from beamtree.evaluation.protocol import Recommend, by_beam
from beamtree.recommender import DeepTreeRetriever
from tests.small import small_config, two_group_log


def test_evaluate_after_fit_does_not_search_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []

    def counting(engine: Any, *, beam_width: int) -> Recommend:
        search = by_beam(engine, beam_width=beam_width)

        def recommend(*question: Any) -> Any:
            searches.append(beam_width)
            return search(*question)

        return recommend

    monkeypatch.setattr(recommender, "by_beam", counting)
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
