"""A score adds up its parts, each on its own levels, under names of its own."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from beamtree.data.requests import Histories, Requests
from beamtree.errors import ArtefactError, InputError
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.model.score import ATTENTION, Score, attention_alone, build_score
from beamtree.model.torch_scorer import build_torch_scorer
from beamtree.training.optimiser import ScoreOptimiser
from tests.small import (
    assert_same_bytes,
    fresh_attention,
    model_settings,
    random_tree,
    score_of,
    small_config,
    stirred_model,
    weights_of,
)
from tests.training.runs import training_settings

TREE = random_tree(4, branching=2, seed=0)
REQUESTS = Requests(Histories.of_lists([[0], [1, 2]]))


class Constant(Part):
    """So many points for every node, on some levels; notes which levels it is asked for."""

    def __init__(self, points: float, *, levels: range | None = None) -> None:
        super().__init__()
        self.points = nn.Buffer(torch.tensor(points))
        self.levels = levels
        self.asked: list[int] = []

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        del requests, read, dropout

        def scores(levels: Sequence[int], nodes: Tensor) -> Tensor:
            self.asked.extend(levels)
            return self.points.expand(nodes.shape)

        return scores


def test_parts_add_up_on_their_own_levels() -> None:
    everywhere, below = Constant(1.0), Constant(10.0, levels=range(2, 3))
    score_nodes = Score(TREE, {"everywhere": everywhere, "below": below}).prepare(REQUESTS)
    nodes = torch.tensor([[[1, 2], [2, -1]], [[3, -1], [4, 6]]])  # (levels 1 and 2, requests, columns)
    absent = -torch.inf
    assert score_nodes([1, 2], nodes).tolist() == [[[1, 1], [1, absent]], [[11, absent], [11, 11]]]
    assert score_nodes([1], nodes[:1]).tolist() == [[[1, 1], [1, absent]]]
    assert (everywhere.asked, below.asked) == ([1, 2, 1], [2])


def test_levels_without_any_part_score_nothing() -> None:
    score_nodes = Score(TREE, {"below": Constant(10.0, levels=range(2, 3))}).prepare(REQUESTS)
    assert score_nodes([1], torch.tensor([[[1, 2], [2, -1]]])).tolist() == [[[0, 0], [0, -torch.inf]]]


def test_levels_are_learned_where_a_part_with_weights_scores() -> None:
    tree = random_tree(30, branching=2, seed=0)
    attention = fresh_attention(model_settings(attention_levels=2), tree, seed=0)
    weighted = Constant(1.0, levels=range(1, 3))
    weighted.weight = nn.Parameter(torch.ones(()))
    counted = Constant(1.0)
    assert Score(tree, {"counted": counted}).learned_levels() == []
    assert Score(tree, {"attention": attention, "counted": counted}).learned_levels() == [4, 5]
    assert Score(tree, {"attention": attention, "weighted": weighted}).learned_levels() == [1, 2, 4, 5]
    everywhere = fresh_attention(model_settings(), tree, seed=0)
    assert Score(tree, {"attention": everywhere}).learned_levels() == [1, 2, 3, 4, 5]


def test_a_part_without_weights_is_searched_but_not_learned() -> None:
    counted = Score(TREE, {"counted": Constant(2.0)})
    assert counted.arrays() == {"counted/points": np.float32(2.0)}
    with pytest.raises(InputError, match=r"something to learn, but its parts \(counted\) have no weights"):
        ScoreOptimiser(counted, settings=training_settings())


def test_a_name_with_a_slash_is_refused() -> None:
    with pytest.raises(InputError, match="without a slash, got a/b"):
        Score(TREE, {"a/b": Constant(1.0)})


def test_by_default_a_score_is_attention_and_starts_as_the_seed_says() -> None:
    config = small_config()
    score = build_score(config, TREE, seed=7)
    assert attention_alone(score) is score.parts[ATTENTION]
    alone = weights_of(fresh_attention(config.model, TREE, seed=7))
    assert_same_bytes(score.arrays(), {f"attention/{name}": array for name, array in alone.items()})
    assert not score.training


def test_arrays_share_memory_and_are_copied_in() -> None:
    first, second = (score_of(stirred_model(model_settings(), TREE, seed=seed)) for seed in (1, 2))
    second.load_arrays(first.arrays())
    assert_same_bytes(second.arrays(), first.arrays())
    first.arrays()["attention/node_table"][:] = 9.0
    assert (first.tables()["attention/node_table"] == 9.0).all()
    assert not (second.tables()["attention/node_table"] == 9.0).any()


def test_arrays_of_another_score_are_refused_and_nothing_is_copied() -> None:
    score = score_of(stirred_model(model_settings(), TREE, seed=1))
    before = {name: array.copy() for name, array in score.arrays().items()}
    other = score_of(stirred_model(model_settings(layers=(7, 5, 3)), TREE, seed=2)).arrays()
    with pytest.raises(ArtefactError, match=r"the parts attention: attention/mlp\.0\.bias and 2 more are"):
        score.load_arrays(other)
    assert_same_bytes(score.arrays(), before)


def test_a_scorer_is_built_from_stored_arrays() -> None:
    """Read-only, and in half precision: computed in single."""
    config = small_config()
    score = build_score(config, TREE, seed=3)
    half = {name: array.astype(np.float16) for name, array in score.arrays().items()}
    for array in half.values():
        array.setflags(write=False)
    scorer = build_torch_scorer(half, TREE, config=config)
    leaves = np.arange(4)
    found = scorer.prepare(REQUESTS).scores(1, TREE.height, leaves)
    score.load_arrays({name: array.astype(np.float32) for name, array in half.items()})
    expected = build_torch_scorer(score.arrays(), TREE, config=config).prepare(REQUESTS).scores(1, TREE.height, leaves)
    np.testing.assert_array_equal(found, expected)
