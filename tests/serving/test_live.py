"""Events change what a served model recommends, once and on every replica, without a new model."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beamtree.model.memory import Memory
from beamtree.model.trend import Trend
from beamtree.retrieval.request import RecommendOptions, RecommendRequest
from beamtree.serving.event_file import EventFile, StoredEvent
from beamtree.serving.histories import Histories, UserEvents
from beamtree.serving.live import LiveEvents
from beamtree.serving.loaded_model import LoadedModel, assemble, load_model
from tests.serving.models import save_model

NOW = 1_700_000_000.0
HOUR = 3600.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    save_model(path, 60, parts=("memory",))
    return path


def model_of(folder: Path, *, moment: float = NOW, **log: Any) -> LoadedModel:
    """A model that has learned until a moment, in which the trend counts; log: settings of how its log was read."""
    artefact = load_model(folder).artefact
    memory = Memory.from_arrays(artefact.part("memory"))
    trend = Trend(np.zeros(artefact.tree.num_items, dtype=np.float32), half_life=HOUR, moment=moment)
    memory = replace(memory, trend=trend, weights=replace(memory.weights, trend=1.0, transitions=1.0))
    weights = dict(artefact.weights) | {f"memory/{name}": array for name, array in memory.arrays().items()}
    config = artefact.config.model_copy(update={"log": artefact.config.log.model_copy(update=log)})
    return assemble(replace(artefact, config=config, weights=weights, version=f"at {moment}"))


class Server:
    """What a server has of live events, without a thread."""

    def __init__(self, path: Path, model: LoadedModel) -> None:
        self.file = EventFile(path)
        self.model = model
        histories = Histories(None, stored=UserEvents(path, lock_seconds=1.0), latest=100)
        self.live = LiveEvents(
            path, current=lambda: self.model, histories=histories, lock_seconds=1.0, clock=lambda: NOW + 3 * HOUR
        )

    def take(self, *events: tuple[str, int, float], event_type: str | None = None) -> None:
        with self.file.transaction():
            self.file.add([StoredEvent(user, item, time, event_type) for user, item, time in events])

    def top(self, history: list[int], k: int = 3) -> list[int]:
        request = RecommendRequest(history=history, options=RecommendOptions(k=k, exclude_seen=False))
        [answer] = self.model.recommender.recommend([request])
        return [int(item) for item in answer.items]


@pytest.fixture
def server(folder: Path, tmp_path: Path) -> Server:
    return Server(tmp_path / "events.sqlite", model_of(folder))


def test_what_several_people_did_after_an_item_is_recommended_to_the_next(server: Server) -> None:
    before = server.top([100])
    odd = next(item for item in range(100, 160) if item not in server.top([100], k=50))
    server.take(*((f"u{number}", item, NOW + 1 + number) for number in range(30) for item in (100, odd)))
    assert server.top([100]) == before  # nobody has read the file yet
    assert not server.live.read()
    assert server.top([100])[0] == odd
    assert server.live.num_interactions == 60
    server.live.read()
    assert server.live.num_interactions == 60


def test_the_trend_follows_the_events(server: Server) -> None:
    odd = next(item for item in range(100, 160) if item not in server.top([101], k=50))
    server.take(*((f"v{number}", odd, NOW + HOUR) for number in range(400)))
    server.live.read()
    assert odd in server.top([101], k=3)


def test_an_event_from_the_future_does_not_erase_the_trend(server: Server) -> None:
    odd = next(item for item in range(100, 160) if item not in server.top([101], k=50))
    server.take(*((f"v{number}", odd, NOW + HOUR) for number in range(400)))
    server.take(("liar", 100, 9e18), ("liar", 103, 1e308))
    server.live.read()
    assert server.live.num_interactions == 402
    assert odd in server.top([101], k=3)
    server.take(*((f"w{number}", odd + 1, NOW + 2 * HOUR) for number in range(800)))
    server.live.read()
    assert odd + 1 in server.top([101], k=3), "what comes later counts too"


def test_what_a_model_has_learned_is_not_counted_again_but_comes_before(folder: Path, tmp_path: Path) -> None:
    server = Server(tmp_path / "events.sqlite", model_of(folder, moment=NOW + 100.0))
    server.take(("u", 100, NOW), ("u", 107, NOW + 200.0))
    server.live.read()
    assert server.live.num_interactions == 1
    recent = server.live._memory.memory().recent  # type: ignore[union-attr]
    assert recent is not None
    assert len(recent.items) == 1  # 100 -> 107


def test_a_replica_that_starts_later_remembers_the_same(folder: Path, tmp_path: Path) -> None:
    first = Server(tmp_path / "events.sqlite", model_of(folder))
    for number in range(20):
        first.take((f"u{number % 3}", 100 + number, NOW + number))
        first.live.read()
    second = Server(tmp_path / "events.sqlite", model_of(folder))
    second.live.read()
    for history in ([100], [105, 110]):
        assert first.top(history, k=20) == second.top(history, k=20)


def test_a_new_model_starts_over_with_what_it_has_not_learned(folder: Path, server: Server) -> None:
    server.take(("u", 100, NOW + 1.0), ("u", 101, NOW + 2.0), ("u", 102, NOW + 50.0))
    server.live.read()
    assert server.live.num_interactions == 3
    server.model = model_of(folder, moment=NOW + 10.0)
    server.live.read()
    assert server.live.num_interactions == 1


def test_whoever_is_erased_is_forgotten(server: Server) -> None:
    odd = next(item for item in range(100, 160) if item not in server.top([100], k=50))
    server.take(*((f"u{number}", item, NOW + 1.0) for number in range(9) for item in (100, odd)))
    server.live.read()
    assert server.top([100])[0] == odd
    with server.file.transaction():
        for number in range(9):
            server.file.erase_user(f"u{number}")
    server.live.read()
    assert server.live.num_interactions == 0


def test_items_that_the_model_does_not_know_are_passed_over(server: Server) -> None:
    with server.file.transaction():
        server.file.add([StoredEvent("u", "text", NOW + 1.0), StoredEvent("u", 99_999, NOW + 2.0)])
    server.live.read()
    assert server.live.num_interactions == 0


def test_explanations_know_the_events_too(server: Server) -> None:
    odd = next(item for item in range(100, 160) if item not in server.top([100], k=50))
    before = server.model.recommender.explain([100], [odd])[0]
    server.take(*((f"u{number}", item, NOW + 1.0) for number in range(30) for item in (100, odd)))
    server.live.read()
    after = server.model.recommender.explain([100], [odd])[0]
    assert after.score > before.score
    assert after.parts["memory"] == pytest.approx(after.score, rel=1e-4)


def test_whoever_has_no_history_gets_what_others_want_now(server: Server) -> None:
    server.take(*((f"w{number}", 142, NOW + HOUR) for number in range(50)))
    server.live.read()
    [answer] = server.model.recommender.recommend([RecommendRequest(history=[], options=RecommendOptions(k=1))])
    assert answer.items == [142]


def test_events_count_what_the_model_was_fitted_to_count_their_type(folder: Path, tmp_path: Path) -> None:
    """One purchase counts like nine views; what is left out, or is of a type that this model has not, not at all."""
    weights = {"view": 1.0, "buy": 9.0, "impression": 0.0}
    server = Server(tmp_path / "events.sqlite", model_of(folder, event_weights=weights))
    viewed, bought, shown, strange = [item for item in range(100, 160) if item not in server.top([100], k=50)][:4]
    happened = (("view", viewed, 5), ("buy", bought, 1), ("impression", shown, 50), ("unheard-of", strange, 50))
    for event_type, item, users in happened:
        server.take(
            *((f"{event_type}{number}", one, NOW + 1) for number in range(users) for one in (100, item)),
            event_type=event_type,
        )
    server.live.read()
    assert server.live.num_interactions == 2 * 6
    assert server.top([100], k=2) == [bought, viewed]
    assert not {shown, strange} & set(server.top([100], k=8))


def test_events_that_are_no_targets_tell_what_came_before(folder: Path, tmp_path: Path) -> None:
    server = Server(tmp_path / "events.sqlite", model_of(folder, target_events=("buy",)))
    viewed, bought = [item for item in range(100, 160) if item not in server.top([100], k=50)][:2]
    for number in range(20):
        server.take((f"u{number}", viewed, NOW + 1), event_type="view")
        server.take((f"u{number}", bought, NOW + 2), event_type="buy")
        server.take((f"v{number}", 100, NOW + 1), (f"v{number}", viewed, NOW + 2), event_type="view")
    server.live.read()
    assert server.top([viewed])[0] == bought
    assert viewed not in server.top([100], k=8)
