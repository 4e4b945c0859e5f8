"""Memory that goes on counting gives what counting everything at once gives."""

from dataclasses import replace

import numpy as np
import pytest

from beamtree.data.sequences import Sequences
from beamtree.data.split import split_none
from beamtree.model.live_memory import Interaction, LiveMemory
from beamtree.model.memory import Memory, MemoryWeights
from beamtree.model.trend import Trend

NUM_ITEMS = 12
WINDOW = 3


def counted(histories: list[list[int]]) -> Memory:
    lengths = np.array([len(history) for history in histories])
    flat = np.array([item for history in histories for item in history], dtype=np.int32)
    sequences = Sequences(flat, np.concatenate([[0], np.cumsum(lengths)]))
    memory = Memory.count(sequences, split_none(sequences).train, num_items=NUM_ITEMS, window=WINDOW)
    return memory.weighed(MemoryWeights(transitions=1.0, popularity=0.0, fade=0.8))


def evidence(memory: Memory, history: list[int]) -> np.ndarray:
    found = np.zeros(NUM_ITEMS)
    for kind in memory.kinds:
        for source, weight in kind.sources(np.array(history, dtype=np.int32)):
            own = slice(kind.links.offsets[source], kind.links.offsets[source + 1])
            found[kind.links.items[own]] += weight * kind.links.strengths[own].astype(np.float64)
    return found


def random_histories(seed: int) -> list[list[int]]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, NUM_ITEMS, size=rng.integers(2, 9)).tolist() for _ in range(30)]


def test_transitions_are_those_of_all_interactions() -> None:
    whole = random_histories(0)
    cuts = [len(history) // 2 for history in whole]
    live = LiveMemory(counted([history[:cut] for history, cut in zip(whole, cuts, strict=True)]), window=WINDOW)
    for history, cut in zip(whole, cuts, strict=True):
        for place in range(cut, len(history)):
            live.add([Interaction(history[place], history[:place], None)])
    for history in ([0], [3, 5], [1, 2, 3, 4]):
        assert evidence(live.memory(), history) == pytest.approx(evidence(counted(whole), history), abs=0.02)


def test_company_of_an_item_that_is_new_is_that_of_all_interactions() -> None:
    """Nobody repeats, and everybody meets the new item last: then events know all that a count of the log knows."""
    rng = np.random.default_rng(2)
    new = NUM_ITEMS - 1
    histories = [rng.permutation(new)[: rng.integers(1, 5)].tolist() for _ in range(20)]
    known = counted(histories).weighed(MemoryWeights(transitions=0.0, company=2.0))
    live = LiveMemory(known, window=20)
    for history in histories[:6]:
        live.add([Interaction(new, history, None)])
    whole = counted([[*history, new] if number < 6 else history for number, history in enumerate(histories)])
    for source in range(new):
        expected = evidence(whole.weighed(known.weights), [source])[new]
        assert evidence(live.memory(), [source])[new] == pytest.approx(expected, abs=2e-3)
    assert evidence(live.memory(), histories[0])[new] > 0.0


def test_company_counts_people_once() -> None:
    """Who meets an item again, or had another twice, is one person."""
    known = counted([[0], [0, 1]]).weighed(MemoryWeights(transitions=0.0, company=1.0))
    live = LiveMemory(known, window=20)
    live.add([Interaction(2, [0, 0], None), Interaction(2, [0, 0, 2], None)])
    assert evidence(live.memory(), [0])[2] == pytest.approx(2 ** -(1 - known.weights.balance), abs=1e-3)


def test_the_trend_is_that_of_all_interactions_as_of_the_newest() -> None:
    times, items = np.array([0.0, 5.0, 9.0]), np.array([0, 1, 1], dtype=np.int32)
    later_times, later_items = [12.0, 30.0, 29.0], [2, 0, 3]
    known = replace(counted([[0, 1]]), trend=Trend.count(times, items, num_items=NUM_ITEMS, half_life=10.0))
    live = LiveMemory(known, window=WINDOW)
    live.add([Interaction(item, [], time) for item, time in zip(later_items, later_times, strict=True)])
    everything = Trend.count(
        np.append(times, later_times),
        np.append(items, later_items).astype(np.int32),
        num_items=NUM_ITEMS,
        half_life=10.0,
    )
    assert live.memory().trend.moment == 30.0
    assert live.memory().trend.demand == pytest.approx(everything.demand, abs=1e-5)


def test_events_count_with_their_weights() -> None:
    """As the same interactions count in a log: a purchase of weight 5 as five, what is no target not at all."""
    live, repeated = (LiveMemory(counted([[0, 1]]), window=WINDOW) for _ in range(2))
    live.add([Interaction(2, [0], None, 5.0), Interaction(3, [0], None, 0.0)])
    repeated.add([Interaction(2, [0], None)] * 5)
    assert evidence(live.memory(), [0]) == pytest.approx(evidence(repeated.memory(), [0]), abs=1e-6)
    trend = Trend(np.zeros(NUM_ITEMS, dtype=np.float32), half_life=1.0, moment=0.0)
    live = LiveMemory(replace(counted([[0, 1]]), trend=trend), window=WINDOW)
    live.add([Interaction(2, [], 1.0, 5.0), Interaction(3, [], 1.0, 0.0)])
    assert live.memory().trend.demand[[2, 3]] == pytest.approx([np.log(6.0), 0.0], abs=1e-6)


def test_the_trend_survives_many_half_lives() -> None:
    known = replace(counted([[0, 1]]), trend=Trend(np.ones(NUM_ITEMS, dtype=np.float32), half_life=1.0, moment=0.0))
    live = LiveMemory(known, window=WINDOW)
    for number in range(60):
        live.add([Interaction(3, [], 100.0 * number)])
    demand = live.memory().trend.demand
    assert demand[3] == pytest.approx(np.log(2.0), abs=1e-6)
    assert demand[0] == 0.0


def test_pairs_have_a_bound() -> None:
    live = LiveMemory(counted([[0, 1]]), window=WINDOW, most_pairs=20)
    rng = np.random.default_rng(0)
    for _ in range(500):
        live.add([Interaction(int(rng.integers(NUM_ITEMS)), rng.integers(0, NUM_ITEMS, 3).tolist(), None)])
        assert len(live._pairs) <= 20


def test_without_events_nothing_changes() -> None:
    known = counted(random_histories(1))
    assert LiveMemory(known, window=WINDOW).memory().kinds[0].links is known.kinds[0].links
    assert len(LiveMemory(known, window=WINDOW).memory().kinds) == len(known.kinds)
