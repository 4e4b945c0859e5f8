from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from beamtree.baselines.indexes.vectors import MeanOfHistory, din_vectors, sasrec_vectors, training_queries
from beamtree.baselines.next_item import SASREC
from beamtree.data.requests import Requests
from beamtree.training.events import Event
from beamtree.types import Float32Array
from tests.baselines.indexes.communities import BUDGET, GROUP_SIZE, community_log
from tests.baselines.small_logs import ask, dataset_of, halves, whole

CORNERS = np.array([[2, 0], [0, 4], [6, 6]], dtype=np.float32)


def test_the_mean_of_a_history_by_hand() -> None:
    source = MeanOfHistory(CORNERS, history_length=2, without_history=np.array([1, 1], dtype=np.float32))
    queries = source.queries(ask([0, 1], [2, 2, 0], [], [1]))
    assert queries.tolist() == [[1, 2], [4, 3], [1, 1], [0, 4]]
    assert source.queries(ask()).shape == (0, 2)


def test_din_puts_items_of_a_group_together_and_is_found_again(tmp_path: Path) -> None:
    dataset = community_log()
    events: list[Event] = []
    given = replace(BUDGET, directory=tmp_path, listen=events.append)
    split = whole(dataset)
    source = din_vectors(dataset, split, budget=given)
    heard = list(events)
    again = din_vectors(dataset, split, budget=given)
    assert heard
    assert events == heard, "nothing is trained anew"
    assert source.item_vectors.tobytes() == again.item_vectors.tobytes()
    first, second = source.item_vectors[:GROUP_SIZE], source.item_vectors[GROUP_SIZE : 2 * GROUP_SIZE]
    assert (first @ first.T).mean() > (first @ second.T).mean()


def test_din_with_other_settings_is_another(tmp_path: Path) -> None:
    dataset = community_log()
    given = replace(BUDGET, directory=tmp_path)
    training = given.config.training.model_copy(update={"seed": 1})
    other = replace(given, config=given.config.model_copy(update={"training": training}))
    vectors = [din_vectors(dataset, whole(dataset), budget=each).item_vectors for each in (given, other)]
    assert vectors[0].tobytes() != vectors[1].tobytes()


def test_din_learns_from_the_training_spans_alone() -> None:
    """The second half of the first user says something else; nobody may see it, not even the mean of all."""
    lists = [community_log().sequences.of(user).tolist() for user in range(12)]
    sources = []
    for second_half in (lists[0][6:], [23] * 6):
        dataset = dataset_of([lists[0][:6] + second_half, *lists[1:]], num_items=24)
        split = halves(dataset, validation=[0])
        tested = replace(split, validation=split.test, test=split.validation)
        sources.append(din_vectors(dataset, tested, budget=BUDGET))
    assert sources[0].item_vectors.tobytes() == sources[1].item_vectors.tobytes()
    assert sources[0].without_history.tobytes() == sources[1].without_history.tobytes()


def test_exact_search_of_sasrec_vectors_is_sasrec(tmp_path: Path) -> None:
    dataset = community_log()
    given = replace(BUDGET, directory=tmp_path)
    source = sasrec_vectors(dataset, whole(dataset), budget=given)
    requests = ask([0, 1], [7, 9, 8], [])
    scores = SASREC.fit(dataset, whole(dataset), budget=given).score(requests)
    np.testing.assert_allclose(source.queries(requests) @ source.item_vectors.T, scores, rtol=1e-4, atol=1e-5)


@dataclass
class Remembering:
    """Keeps the histories that it is asked with."""

    item_vectors: Float32Array = field(default_factory=CORNERS.copy)
    histories: list[list[int]] = field(default_factory=list)

    def queries(self, requests: Requests) -> Float32Array:
        self.histories += [requests.histories.row(row).tolist() for row in range(len(requests))]
        return np.zeros((len(requests), 2), dtype=np.float32)


def test_training_queries_are_cuts_of_the_training_spans() -> None:
    dataset = dataset_of([[0, 1, 2, 2], [1, 0]], num_items=3)
    split = halves(dataset, validation=[0])
    drawn: Mapping[int, Any] = {count: Remembering() for count in (10, 2)}
    for count, source in drawn.items():
        training_queries(source, dataset, split, seed=0)(count)
    every = [[0], [0, 1], [1], [1, 0]]
    assert drawn[10].histories == every
    assert len(drawn[2].histories) == 2
    assert all(history in every for history in drawn[2].histories)
