"""Labels that are computed when first met, and kept."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

from beamtree.data.sequences import Sequences
from beamtree.data.split import Spans
from beamtree.model.next_item import NextItemModel
from beamtree.training.horizon import TargetHorizon
from beamtree.training.instances import Batch, TrainingInstances
from beamtree.training.labelled import BLOCK, LabelCache, RectifiedInstances
from beamtree.training.labels import Labels, RectifiedLabels
from beamtree.tree.build import plant
from research.labels import NormalisedLabels, SoftLabels
from tests.small import encoder_settings

ITEMS = 50


def instances(*, each: int = 1) -> TrainingInstances:
    """Of users with 20, 40, 60 and 280 interactions, so that histories are of many lengths."""
    generator = np.random.default_rng(0)
    offsets = np.array([0, 20, 60, 120, 400])
    sequences = Sequences(generator.integers(0, ITEMS, 400).astype(np.int32), offsets)
    spans = Spans(user=np.arange(4, dtype=np.int32), start=offsets[:-1], end=offsets[1:])
    horizon = TargetHorizon(each, each=each)
    return TrainingInstances(sequences, spans, first_target=1, horizon=horizon)


def test_an_instance_is_asked_for_once_and_always_in_blocks_of_one_size() -> None:
    asked: list[int] = []

    def answer(batch: Batch) -> tuple[np.ndarray]:
        asked.append(len(batch.targets))
        return (batch.targets * 2,)

    every = instances()
    cache = LabelCache(every, answer)
    first, again = np.array([5, 7, 5, 300]), np.array([300, 7, 9])
    np.testing.assert_array_equal(cache.of(first)[0], 2 * every.batch(first).targets)
    np.testing.assert_array_equal(cache.of(again)[0], 2 * every.batch(again).targets)
    cache.of(again)
    assert asked == [BLOCK, BLOCK], "5, 7 and 300, then 9 alone"


@pytest.mark.parametrize("history_length", [6, 69])
def test_labels_do_not_depend_on_the_company_they_are_computed_in(history_length: int) -> None:
    estimator = NextItemModel(
        encoder_settings(width=16),
        num_items=ITEMS,
        history_length=history_length,
        generator=torch.Generator().manual_seed(0),
    ).eval()
    tree = plant(np.random.default_rng(1).permutation(ITEMS).astype(np.int32), branching=2)

    def rectified() -> RectifiedInstances:
        some = instances(each=3)
        return NormalisedLabels().label(some, tree=tree, estimator=estimator)

    together, apart = rectified(), rectified()
    every = np.arange(200)
    expected = together.batch(every).level_weights
    assert expected is not None
    for part in np.array_split(np.random.default_rng(2).permutation(every), 13):
        found = apart.batch(part).level_weights
        assert found is not None
        np.testing.assert_array_equal(found, expected[part])
    np.testing.assert_allclose(apart.mean_labels(), together.mean_labels(), rtol=1e-12)


@pytest.mark.parametrize("asked_length", [2, 9])
def test_an_estimator_is_asked_with_histories_of_its_own_length(asked_length: int) -> None:
    class LastItems:
        history_length = asked_length

        def scores(self, histories: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
            lengths.add(histories.shape[1])
            return np.zeros((len(histories), ITEMS), dtype=np.float32)

    lengths: set[int] = set()
    tree = plant(np.arange(ITEMS, dtype=np.int32), branching=2)
    every: list[Labels] = [RectifiedLabels(), SoftLabels(items=3)]
    for labels in every:
        labels.label(instances(), tree=tree, estimator=LastItems()).batch(np.arange(40), epoch=0)
    assert lengths == {asked_length}
