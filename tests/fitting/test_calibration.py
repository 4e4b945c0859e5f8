"""Weights of the parts: found one after the other, told ones left alone, none tried that cannot matter."""

from dataclasses import astuple, replace
from typing import Any

import pytest

from beamtree.fitting.calibration import (
    BESIDE_LEARNED,
    FADES,
    MEMORY_ALONE,
    STEPS,
    Choice,
    Measure,
    PartWeights,
    calibrate,
    evidence_weights,
    grid_units,
)
from beamtree.model.memory import MemoryWeights

UNITS = dict.fromkeys(("tower", "transitions", "company", "repeats", "popularity"), 1.0)
EVERYTHING = Choice(
    has_learned=True,
    has_tower=True,
    has_memory=True,
    repeats_can_return=True,
    people_repeat=True,
    fixed={},
)
MEMORY = replace(EVERYTHING, has_learned=False, has_tower=False, repeats_can_return=False)


def nearness(wanted: PartWeights, tried: list[PartWeights]) -> Measure:
    """A metric that is highest at the wanted weights; what is asked is written down."""

    def numbers(weights: PartWeights) -> tuple[Any, ...]:
        return (weights.tower, *astuple(weights.memory))

    def measure(weights: PartWeights) -> float:
        tried.append(weights)
        return -float(sum(abs(ours - theirs) for ours, theirs in zip(numbers(weights), numbers(wanted), strict=True)))

    return measure


def test_each_weight_is_moved_to_where_the_metric_is_highest() -> None:
    tried: list[PartWeights] = []
    memory = MemoryWeights(2.0, repeats=4.0, popularity=0.35, fade=0.9, repeat_fade=0.99, company=1.4)
    wanted = PartWeights(tower=2.8, memory=memory)
    found = calibrate(nearness(wanted, tried), EVERYTHING, units=UNITS)
    assert found.weights == wanted
    assert len(tried) == found.trials


def test_a_weight_is_tried_again_once_the_others_have_moved() -> None:
    def measure(weights: PartWeights) -> float:  # the tower is worth something only beside transitions
        return float(
            min(weights.tower, 2.0) * (weights.memory.transitions >= 2.0) + min(weights.memory.transitions, 2.0)
        )

    assert calibrate(measure, EVERYTHING, units=UNITS).weights.tower == 2.0


def test_memory_alone_needs_no_common_factor_and_seen_items_no_repeats() -> None:
    tried: list[PartWeights] = []
    wanted = PartWeights(memory=MemoryWeights(transitions=2.0, repeats=4.0, popularity=0.35, fade=0.9))
    found = calibrate(nearness(wanted, tried), MEMORY, units=UNITS).weights.memory
    assert {weights.memory.transitions for weights in tried} == {MEMORY_ALONE.transitions}
    assert {weights.memory.repeats for weights in tried} == {0.0}
    assert (found.popularity, found.fade) == (0.35, 0.9)


def test_own_repeats_may_speak_against_themselves() -> None:
    choice = replace(EVERYTHING, people_repeat=False)
    assert choice.start().memory.repeats == -16.0
    wanted = PartWeights(memory=MemoryWeights(repeats=-2.8))
    assert calibrate(nearness(wanted, []), EVERYTHING, units=UNITS).weights.memory.repeats == -2.8


def test_a_tower_without_attention_counts_one() -> None:
    tried: list[PartWeights] = []
    choice = replace(EVERYTHING, has_learned=False)
    wanted = PartWeights(tower=4.0, memory=MemoryWeights(transitions=2.0))
    assert calibrate(nearness(wanted, tried), choice, units=UNITS).weights.tower == 1.0
    assert {weights.tower for weights in tried} == {1.0}


def test_what_is_told_is_not_tried() -> None:
    tried: list[PartWeights] = []
    told = {"tower": 0.7, "transitions": 0.33, "popularity": 0.0, "fade": 0.5, "company": 0.25}
    choice = replace(EVERYTHING, repeats_can_return=False, fixed=told)
    found = calibrate(nearness(PartWeights(), tried), choice, units=UNITS).weights
    assert found.tower == 0.7
    assert found.memory == MemoryWeights(0.33, 0.0, 0.0, fade=0.5, company=0.25, repeat_fade=1.0)
    assert len(tried) == 1


@pytest.mark.parametrize(("choice", "start"), [(EVERYTHING, BESIDE_LEARNED), (MEMORY, MEMORY_ALONE)])
def test_without_validation_users_the_weights_are_the_usual_ones(choice: Choice, start: MemoryWeights) -> None:
    found = calibrate(None, choice, units={})
    assert (found.weights.memory.transitions, found.weights.memory.company) == (start.transitions, start.company)
    assert found.weights.memory.repeats == (16.0 if choice.repeats_can_return else 0.0)
    assert found.trials == 0


def test_memory_alone_never_does_without_popularity() -> None:
    tried: list[PartWeights] = []
    wanted = PartWeights(memory=MemoryWeights(transitions=1.0, popularity=0.0))
    found = calibrate(nearness(wanted, tried), MEMORY, units=UNITS)
    assert all(weights.memory.popularity > 0.0 for weights in tried)
    assert found.weights.memory.popularity > 0.0


def test_units_make_all_kinds_of_evidence_spread_alike() -> None:
    spreads = {
        "learned": 3.0,
        "tower": 6.0,
        "transitions 0.7": 1.5,
        "company": 0.0,
        "popularity": 3.0,
        "repeats 1": 0.3,
    }
    units = grid_units(EVERYTHING, spreads.__getitem__)
    assert units == pytest.approx(
        {"learned": 1.0, "tower": 0.5, "transitions": 2.0, "popularity": 1.0, "repeats": 10.0}
    )
    tried: list[PartWeights] = []
    calibrate(nearness(PartWeights(), tried), EVERYTHING, units=units)
    assert {weights.tower for weights in tried} >= {step / 2 for step in STEPS}
    assert {weights.memory.fade for weights in tried} == set(FADES)


def test_the_sum_has_one_weight_for_each_summand() -> None:
    weights = PartWeights(0.5, MemoryWeights(2.0, repeats=3.0, popularity=0.1, fade=0.9, repeat_fade=0.99, company=4.0))
    named = evidence_weights(weights, EVERYTHING)
    assert named == {
        "learned": 1.0,
        "tower": 0.5,
        "transitions 0.9": 2.0,
        "company": 4.0,
        "popularity": 0.1,
        "repeats 0.99": 3.0,
    }
    assert evidence_weights(weights, replace(EVERYTHING, has_memory=False)) == {"learned": 1.0, "tower": 0.5}


def test_a_kind_that_says_the_same_of_everything_stays_where_it_is() -> None:
    tried: list[PartWeights] = []
    calibrate(nearness(PartWeights(), tried), MEMORY, units={"popularity": 1.0})
    assert {weights.memory.company for weights in tried} == {MEMORY_ALONE.company}


def test_all_counts_are_also_weighed_together() -> None:
    """Only the sum of both matters, and each by itself stands in the way of the other: they move together."""

    def measure(weights: PartWeights) -> float:
        memory = weights.memory
        return -abs(memory.transitions + memory.company - 4.0) - 100 * abs(memory.transitions - memory.company)

    memory = calibrate(measure, replace(EVERYTHING, has_learned=False), units=UNITS).weights.memory
    assert (memory.transitions, memory.company) == (2.0, 2.0)
    told = replace(EVERYTHING, has_learned=False, fixed={"company": 0.5})
    assert calibrate(measure, told, units=UNITS).weights.memory.company == 0.5
