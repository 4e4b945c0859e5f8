"""DIN as a tree of one level."""

import numpy as np
import torch

from beamtree.baselines.neural.din import item_vectors
from tests.baselines.neural.small import quick, train
from tests.baselines.small_logs import ask, budget, whole
from tests.baselines.test_contract import NUM_ITEMS, cycling


def test_every_item_is_a_leaf_below_the_root_and_scored_by_the_network() -> None:
    dataset = cycling(users=12)
    task = train(quick("din", epochs=2), dataset, whole(dataset), budget=budget())
    network = task.module
    assert (network.tree.height, network.tree.num_leaves) == (1, NUM_ITEMS)
    vectors = torch.from_numpy(item_vectors(network))
    assert vectors.shape == (NUM_ITEMS, 24)
    history = torch.zeros(1, 69, 24)
    history[0, -2:] = vectors[[3, 4]]
    with torch.no_grad():
        [expected] = network(history, vectors.unsqueeze(0), present=torch.arange(69).unsqueeze(0) >= 67).numpy()
    found = task.answers().search(ask([3, 4]), k=NUM_ITEMS)
    np.testing.assert_allclose(found.scores[0], expected[found.items[0]], rtol=1e-4, atol=1e-5)
