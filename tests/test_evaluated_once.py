"""Nothing is done twice: test users are asked once, an encoder that baselines share is trained once."""

import pytest

from beamtree.data.requests import Requests
from beamtree.errors import InterruptedTraining
from beamtree.evaluation.answers import BeamSearch
from beamtree.recommender import DeepTreeRetriever, evaluate, fit
from beamtree.retrieval.result import SearchResult
from beamtree.training.events import Event, PartsWeighed, StepDone
from tests.small import small_config, two_group_log


def test_evaluate_after_fit_does_not_search_again(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []

    class Counting(BeamSearch):
        def search(self, requests: Requests, *, k: int) -> SearchResult:
            searches.append(self.beam_width)
            return super().search(requests, k=k)

    monkeypatch.setattr(fit, "BeamSearch", Counting)
    monkeypatch.setattr(evaluate, "BeamSearch", Counting)
    model = DeepTreeRetriever(small_config()).fit(two_group_log())
    width = model.config.retrieval.beam_width
    assert searches == [width]
    found = model.evaluate(exact=False)["beam"]
    assert searches == [width]
    assert dict(found) == model.recommender.artefact.metrics["test"]
    assert found.num_users == len(model.held_out())

    model.evaluate(exact=False, held_out="validation")
    model.evaluate(exact=False, beam=width + 1)
    assert searches == [width, width, width + 1], "other users or another beam are other questions"
    model.fit(two_group_log())
    assert searches == [width, width, width + 1, width], "what was fitted anew is measured anew"


def test_baselines_that_share_an_encoder_train_it_once() -> None:
    encoder = {"width": 8, "layers": 1, "epochs": 1}
    model = DeepTreeRetriever(small_config(model={"parts": ["memory"]}, estimator=encoder)).fit(two_group_log())
    events: list[Event] = []
    table = model.evaluate(exact=False, baselines="gru4rec,gru4rec-item-to-item", listen=events.append)
    assert table.seconds.keys() == {"gru4rec", "gru4rec-item-to-item"}
    assert [event.step for event in events if isinstance(event, StepDone)].count(1) == 1


def test_a_fit_that_fails_leaves_the_model_as_it_was() -> None:
    model = DeepTreeRetriever(small_config(model={"parts": ["memory"]})).fit(two_group_log())
    before = model.dataset, model.recommender, model.evaluate(baselines="none")

    def stop(event: Event) -> None:
        if isinstance(event, PartsWeighed):
            raise InterruptedTraining("enough")

    with pytest.raises(InterruptedTraining):
        model.fit(two_group_log(users_per_group=12), listen=stop)
    assert (model.dataset, model.recommender) == before[:2]
    assert dict(model.evaluate(baselines="none")) == dict(before[2])
