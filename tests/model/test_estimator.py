import numpy as np

from beamtree.model.estimator import PopularityEstimator


def test_the_smallest_estimator_follows_the_crowd() -> None:
    scores = PopularityEstimator(np.array([3, 9, 0])).scores(np.array([[0], [2]], dtype=np.int32))
    assert scores.argsort(axis=1).tolist() == [[2, 0, 1], [2, 0, 1]]
