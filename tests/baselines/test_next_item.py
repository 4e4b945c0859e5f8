from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beamtree.baselines import next_item
from beamtree.baselines.encoder import with_encoder
from beamtree.baselines.item_to_item import count_transitions
from beamtree.baselines.next_item import GRU4REC, SASREC, NextItem, WithItemToItem
from beamtree.training.events import Event
from tests.baselines.small_logs import ask, budget, dataset_of, halves, whole

LISTS = [[0, 1, 2, 3] * 2, [4, 5, 6, 7] * 2, [1, 2, 3, 0] * 2, [5, 6, 7, 4] * 2]


@pytest.mark.parametrize("baseline", [SASREC, GRU4REC])
def test_it_learns_once_and_is_found_again(baseline: NextItem, tmp_path: Path) -> None:
    dataset = dataset_of(LISTS, num_items=40)
    events: list[Event] = []
    given = replace(budget(exclude_seen=False), directory=tmp_path, listen=events.append)
    split = halves(dataset, validation=[0, 1])
    first = baseline.fit(dataset, split, budget=given)
    heard = len(events)
    again = baseline.fit(dataset, split, budget=given)
    assert heard > 0
    assert len(events) == heard, "nothing is trained anew"
    assert first.score(ask([0, 1])).tobytes() == again.score(ask([0, 1])).tobytes()


@pytest.mark.parametrize(("share", "learned", "counted"), [(0.0, 1.0, 0.0), (1.0, 0.0, 1.0), (0.25, 0.75, 0.25)])
def test_scores_are_mixed_after_they_were_standardised(
    monkeypatch: pytest.MonkeyPatch, share: float, learned: float, counted: float
) -> None:
    monkeypatch.setattr(next_item, "SHARES", (share,))
    dataset = dataset_of(LISTS, num_items=8)
    split, requests = whole(dataset), ask([0, 1], [5])
    mixed = WithItemToItem(SASREC).fit(dataset, split, budget=budget()).score(requests)
    parts = [SASREC.fit(dataset, split, budget=budget()).score(requests), count_transitions(dataset, split)(requests)]
    standard = [(part - part.mean(axis=1, keepdims=True)) / part.std(axis=1, keepdims=True) for part in parts]
    np.testing.assert_allclose(mixed, learned * standard[0] + counted * standard[1], rtol=1e-4, atol=1e-5)


def test_each_has_its_own_encoder_whatever_the_tower_has() -> None:
    dataset = dataset_of(LISTS, num_items=8)
    split, requests = whole(dataset), ask([0, 1], [5])
    scores = {
        (baseline.name, kind): baseline.fit(dataset, split, budget=given).score(requests).tobytes()
        for baseline in (SASREC, GRU4REC)
        for kind in ("gru", "self-attention")
        for given in [replace(budget(), config=with_encoder(with_encoder(budget().config, "gru"), kind))]
    }
    assert scores["sasrec", "gru"] == scores["sasrec", "self-attention"]
    assert scores["gru4rec", "gru"] == scores["gru4rec", "self-attention"] != scores["sasrec", "gru"]


def test_a_history_that_nothing_followed_leaves_it_to_the_encoder() -> None:
    dataset = dataset_of(LISTS, num_items=9)
    split, requests = whole(dataset), ask([8])
    alone = SASREC.fit(dataset, split, budget=budget()).search(requests, k=9).items
    mixed = WithItemToItem(SASREC).fit(dataset, split, budget=budget()).search(requests, k=9).items
    assert alone.tolist() == mixed.tolist()
