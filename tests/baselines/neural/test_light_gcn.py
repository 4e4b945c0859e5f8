"""LightGCN against the library's own computation."""

import numpy as np
import pytest
import torch

from beamtree.baselines.neural.light_gcn import Graph, LightGcn, Pairs, tuned
from beamtree.data.requests import Histories
from tests.baselines.small_logs import ask, dataset_of, whole

pytest.importorskip("torch_geometric")

LISTS = [[0, 1, 1], [1, 2], [3, 0, 2], [4]]
DATASET = dataset_of(LISTS, num_items=6)


def network() -> LightGcn:
    graph = Graph.of(Histories.of_lists(LISTS), num_items=6)
    return LightGcn(tuned, graph, generator=torch.Generator().manual_seed(0))


def test_pairs_are_counted_once() -> None:
    graph = network().graph
    assert list(zip(graph.users.tolist(), graph.items.tolist(), strict=True)) == [
        (0, 0), (0, 1), (1, 1), (1, 2), (2, 0), (2, 2), (2, 3), (3, 4),
    ]  # fmt: skip
    asked = Pairs(np.array([0, 0, 3, 3]), np.array([1, 2, 4, 5]))
    assert graph.contains(asked).tolist() == [True, False, True, False]


def test_vectors_and_gradients_are_those_of_the_library() -> None:
    own = network()
    graph = own.graph
    ends = torch.from_numpy(np.stack([graph.users, graph.items + graph.num_users]))
    for convolution in own.model.convs:
        convolution.normalize = True
    plain = own.model.get_embedding(torch.cat([ends, ends.flip(0)], dim=1))
    for convolution in own.model.convs:
        convolution.normalize = False
    weights = torch.randn(plain.shape, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad((weights * plain).sum(), own.vectors)[0]
    torch.testing.assert_close(own.smoothed(), plain)
    torch.testing.assert_close(torch.autograd.grad((weights * own.smoothed()).sum(), own.vectors)[0], expected)


def test_whoever_has_the_items_of_a_user_is_answered_as_the_user() -> None:
    own = network()
    answers = own.answers(DATASET, whole(DATASET))
    users, items = own.smoothed().detach().split([4, 6])
    scores = answers.score(ask([1, 0], [2, 0, 3], [4]))
    np.testing.assert_allclose(scores, (users[[0, 2, 3]] @ items.T).numpy(), rtol=1e-5, atol=1e-7)


def test_others_get_what_their_items_pass_on() -> None:
    """A user who is in no graph has a vector of their own of 0, and degrees as in the graph."""
    own = network()
    [scores] = own.answers(DATASET, whole(DATASET)).score(ask([0, 4]))
    layers = [layer.detach()[4:] for layer in own.layers(own.vectors)]
    degrees = torch.tensor(own.graph.item_degrees())[[0, 4]]
    passed_on = torch.stack(layers[:-1])[:, [0, 4]] / (2 * degrees).sqrt().unsqueeze(1)
    query, items = passed_on.sum(dim=(0, 1)) / 4, torch.stack(layers).mean(dim=0)
    np.testing.assert_allclose(scores, (items @ query).numpy(), rtol=1e-4, atol=1e-6)
