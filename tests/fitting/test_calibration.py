"""Weights of the memory: found one after the other, told ones left alone, none tried that cannot matter."""

from dataclasses import astuple

import pytest

from beamtree.config import MemorySettings
from beamtree.fitting.calibration import BESIDE_LEARNED, MEMORY_ALONE, Measure, calibrate
from beamtree.model.memory import MemoryWeights


def nearness(wanted: MemoryWeights, tried: list[MemoryWeights]) -> Measure:
    """A metric that is highest at the wanted weights; what is asked is written down."""

    def measure(weights: MemoryWeights) -> float:
        tried.append(weights)
        distances = [abs(ours - theirs) for ours, theirs in zip(astuple(weights), astuple(wanted), strict=True)]
        return -float(sum(distances))

    return measure


def test_each_weight_is_moved_to_where_the_metric_is_highest() -> None:
    tried: list[MemoryWeights] = []
    wanted = MemoryWeights(2.0, repeats=4.0, popularity=0.3, fade=0.9, repeat_fade=1.0, company=2.0)
    found = calibrate(nearness(wanted, tried), MemorySettings(), beside_learned=True, repeats_can_return=True)
    assert found.weights == wanted
    assert found.metric == 0.0
    assert len(tried) == len(set(tried)) == len(found.trials)


def test_memory_alone_needs_no_common_factor_and_seen_items_no_repeats() -> None:
    tried: list[MemoryWeights] = []
    wanted = MemoryWeights(transitions=2.0, repeats=4.0, popularity=0.3, fade=0.9)
    found = calibrate(nearness(wanted, tried), MemorySettings(), beside_learned=False, repeats_can_return=False)
    assert {weights.transitions for weights in tried} == {MEMORY_ALONE.transitions}
    assert {weights.repeats for weights in tried} == {0.0}
    assert (found.weights.popularity, found.weights.fade) == (0.3, 0.9)


def test_what_is_told_is_not_tried() -> None:
    tried: list[MemoryWeights] = []
    told = MemorySettings(transitions=0.33, popularity=0.0, fade=0.5, company=0.25)
    found = calibrate(nearness(MemoryWeights(), tried), told, beside_learned=True, repeats_can_return=False)
    assert found.weights == MemoryWeights(0.33, 0.0, 0.0, fade=0.5, company=0.25)
    assert tried == []


@pytest.mark.parametrize(("beside_learned", "start"), [(True, BESIDE_LEARNED), (False, MEMORY_ALONE)])
def test_without_validation_users_the_weights_are_the_usual_ones(beside_learned: bool, start: MemoryWeights) -> None:
    found = calibrate(None, MemorySettings(), beside_learned=beside_learned, repeats_can_return=True)
    assert (found.weights.transitions, found.weights.company) == (start.transitions, start.company)
    assert (found.weights.repeats, found.weights.repeat_fade) == (16.0, 1.0)
    assert found.metric is None


def test_memory_alone_never_does_without_popularity() -> None:
    tried: list[MemoryWeights] = []
    wanted = MemoryWeights(transitions=1.0, popularity=0.0)
    found = calibrate(nearness(wanted, tried), MemorySettings(), beside_learned=False, repeats_can_return=False)
    assert all(weights.popularity > 0.0 for weights in tried)
    assert found.weights.popularity > 0.0
