"""Vectors from features, learned beside the items' own."""

import numpy as np
import polars as pl
import torch

from beamtree.data.features import FeatureSchema
from beamtree.model.features import FeatureVectors
from beamtree.model.next_item import NextItemModel
from beamtree.model.proposal import Proposal
from tests.small import encoder_settings

TABLE = pl.DataFrame({"kind": ["a", "a", "b", "b", "b", "a"], "vector": [[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3})
SCHEMA = FeatureSchema.infer(TABLE)
FEATURES = SCHEMA.encode(TABLE)


def filled(width: int) -> FeatureVectors:
    vectors = FeatureVectors(FEATURES, num_rows=SCHEMA.num_rows, width=width)
    with torch.no_grad():
        for parameter in vectors.parameters():
            parameter.normal_(generator=torch.Generator().manual_seed(0))
    return vectors


def test_items_with_the_same_features_have_the_same_vector() -> None:
    vectors = filled(4)()
    assert torch.equal(vectors[0], vectors[1])
    assert torch.equal(vectors[3], vectors[4])
    assert not torch.equal(vectors[0], vectors[2])
    assert torch.allclose(filled(4)(torch.tensor([5, 2])), vectors[[5, 2]])


def test_before_learning_features_add_nothing_and_then_their_rows_learn() -> None:
    settings = encoder_settings(width=8, layers=1, dropout=0.0)
    content = FeatureVectors(FEATURES, num_rows=SCHEMA.num_rows, width=8)
    plain, encoder = (
        NextItemModel(
            settings,
            num_items=6,
            history_length=4,
            generator=torch.Generator().manual_seed(1),
            content=added,
        )
        for added in (None, content)
    )
    assert np.array_equal(encoder.item_vectors(), plain.item_vectors())
    history = np.array([[0, 2, 3, 1]], dtype=np.int32)
    assert np.array_equal(encoder.scores(history), plain.scores(history))
    loss = encoder.loss(
        history[0],
        np.array([[2], [3], [1], [4]], dtype=np.int32),
        lengths=np.array([4]),
        proposal=Proposal.half_by_frequency(np.ones(6, dtype=np.int64)),
        generator=torch.Generator().manual_seed(0),
    )
    loss.backward()
    gradient = content.embedding.grad
    assert gradient is not None
    assert gradient[FEATURES.entries[0, 0]].abs().sum() > 0
    assert gradient[0].abs().sum() == 0  # the row of nothing
    assert content.projection.grad is not None
    assert content.projection.grad.abs().sum() > 0
