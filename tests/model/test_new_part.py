"""A new part of the score, from scratch: what one writes, and all that one gets for it.

`Taste` knows nothing of the kernels. It is written in torch alone, named in `parts`, and can then be trained, searched,
validated, used to relearn the tree, saved and loaded: slower than what the kernels know, and as rightly.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor, nn

from beamtree.config import Config
from beamtree.data.dataset import prepare_dataset
from beamtree.data.requests import Histories, Requests
from beamtree.data.split import split_none
from beamtree.errors import ArtefactError
from beamtree.evaluation.protocol import split_dataset
from beamtree.fitting.computation import build_candidate_scores, build_learner
from beamtree.fitting.validation import model_validation
from beamtree.model.attention import make_attention
from beamtree.model.part import Part, PreparedPart, ReadRows
from beamtree.model.score import Score, build_score
from beamtree.model.torch_scorer import TorchScorer
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import bind_items
from beamtree.storage import write_arrays
from beamtree.training.instances import TrainingInstances
from beamtree.training.learner import TorchLearner
from beamtree.training.relearn import relearn_tree
from beamtree.tree.item_tree import ItemTree
from tests.small import assert_same_bytes, random_tree, sequences_of, small_config, two_group_log
from tests.training.runs import take_step


class Taste(Part):
    """How popular a node is, and how near it is to the mean item of the history: b_n + s <mean of items, v_n>."""

    tables = frozenset({"bias", "nodes", "items"})  # read by rows: a step touches those of its batch alone
    node_tables = frozenset({"bias", "nodes"})  # a row for each node of the tree

    def __init__(self, tree: ItemTree, *, size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(tree.num_nodes, 1))
        self.nodes = nn.Parameter(torch.randn(tree.num_nodes, size, generator=generator))
        self.items = nn.Parameter(torch.randn(tree.num_items, size, generator=generator))
        self.scale = nn.Parameter(torch.ones(()))  # a small weight: every step updates it

    def prepare(self, requests: Requests, *, read: ReadRows, dropout: torch.Generator | None) -> PreparedPart:
        """The mean of each history, once for all levels."""
        del dropout
        rows = torch.from_numpy(requests.histories.latest(50)).to(self.device).long()  # (requests, 50), -1 = padding
        present = (rows >= 0).unsqueeze(-1)
        mean = (read("items", rows) * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)  # (requests, size)

        def scores(_levels: Sequence[int], nodes: Tensor) -> Tensor:
            nearness = (read("nodes", nodes) * mean.unsqueeze(1)).sum(dim=-1)  # (levels, requests, columns)
            return read("bias", nodes).squeeze(-1) + self.scale * nearness

        return scores


def make_taste(tree: ItemTree, config: Config, *, generator: torch.Generator, item_table: pl.DataFrame) -> Taste:
    """What `parts` takes: from a tree, the settings, a generator and what is known of the items to a fresh part."""
    del item_table
    return Taste(tree, size=config.model.embedding_dim, generator=generator)


TASTE = bind_items({"taste": make_taste}, pl.DataFrame())
PARTS = {"attention": make_attention, **TASTE}
TREE = random_tree(12, branching=2, seed=1, num_leaves=14)
CONFIG = small_config(training={"method": "dtr-t"})
RING = sequences_of([[(start + step) % 12 for step in range(6)] for start in range(12)])
INSTANCES = TrainingInstances(RING, split_none(RING).train, first_target=1)
REQUESTS = Requests(Histories.of_lists([[], [3], [0, 1, 2], list(range(12))]), excluded=sequences_of([[], [4], [], []]))


@pytest.fixture
def score() -> Score:
    return build_score(CONFIG, TREE, seed=5, parts=PARTS)


def test_it_learns_and_moves_the_rows_of_its_batch_alone(score: Score) -> None:
    learner = build_learner(score, config=CONFIG)
    assert isinstance(learner, TorchLearner), "the kernels do not know it"
    before = {name: array.copy() for name, array in score.arrays().items()}
    take_step(learner, INSTANCES.batch(np.array([0])), step=0, learning_rate=0.02)
    changed = {name: array != before[name] for name, array in score.arrays().items()}
    assert np.flatnonzero(changed["taste/items"].any(axis=1)).tolist() == [0], "the history of the first instance"
    assert 0 < changed["taste/nodes"].any(axis=1).sum() < TREE.num_nodes // 2
    assert changed["taste/scale"]
    everything = INSTANCES.batch(np.arange(len(INSTANCES)))
    losses = [take_step(learner, everything, step=step, learning_rate=0.05) for step in range(1, 20)]
    assert losses[-1] < 0.6 * losses[0]


def test_it_is_searched_and_a_full_beam_finds_what_a_scan_finds(score: Score) -> None:
    engine = Engine(TorchScorer(score), TREE)
    found, expected = engine.search(REQUESTS, k=12, beam_width=TREE.num_leaves), engine.scan(REQUESTS, k=12)
    np.testing.assert_array_equal(found.items, expected.items)
    np.testing.assert_array_equal(found.scores, expected.scores)
    assert sorted(found.items[0].tolist()) == list(range(12))
    assert found.items[1, -1] == -1, "the item that was excluded leaves a place empty"
    assert 4 not in found.items[1]


def test_it_adds_what_its_formula_says(score: Score) -> None:
    """Beside attention, which is asked alone for the rest."""
    alone = Score(TREE, {"attention": score.parts["attention"]})
    arrays, leaves = score.arrays(), np.arange(TREE.num_leaves)
    rows = leaves + TREE.level_offsets[TREE.height]
    mean = arrays["taste/items"][[0, 1, 2]].mean(axis=0)
    expected = arrays["taste/bias"][rows, 0] + arrays["taste/nodes"][rows] @ mean
    found, of_attention = (
        TorchScorer(each).prepare(REQUESTS).scores(2, TREE.height, leaves) for each in (score, alone)
    )
    np.testing.assert_allclose(found - of_attention, expected, rtol=1e-4, atol=1e-5)


def test_it_is_validated_on_held_out_users() -> None:
    """Users of two groups, each with items of its own: what was learned recommends within the group."""
    dataset = prepare_dataset(two_group_log(), min_interactions=2)
    config = small_config(retrieval={"exclude_seen": False})
    split = split_dataset(dataset, config=config)
    tree = random_tree(len(dataset.items), branching=2, seed=0)
    score = build_score(config, tree, seed=0, parts=TASTE)
    validate = model_validation(score, dataset, split.validation, config=config)
    assert validate is not None
    untrained = validate()["ndcg@20"]
    learner = build_learner(score, config=config)
    instances = TrainingInstances(dataset.sequences, split.train, first_target=1)
    for step in range(60):
        take_step(learner, instances.batch(np.arange(len(instances))), step=step, learning_rate=0.05)
    assert validate()["ndcg@20"] > 1.2 * untrained


def test_it_says_where_items_should_stand(score: Score) -> None:
    """The whole score relearns the tree, attention and taste together."""
    relearned = relearn_tree(TREE, INSTANCES, add_scores=build_candidate_scores(score), stride=2)
    assert relearned.score_after > relearned.score_before
    assert sorted(relearned.tree.item_at_leaf.tolist()) == sorted(TREE.item_at_leaf.tolist())


def test_it_is_saved_and_loaded(score: Score, tmp_path: Path) -> None:
    write_arrays(score.arrays())(tmp_path / "weights.safetensors")
    loaded = build_score(CONFIG, TREE, seed=6, parts=PARTS)
    loaded.load_arrays(load_file(tmp_path / "weights.safetensors"))
    assert_same_bytes(loaded.arrays(), score.arrays())
    with pytest.raises(ArtefactError, match="taste/bias and 3 more are missing, unknown or of another size"):
        build_score(CONFIG, TREE, seed=6).load_arrays(score.arrays())
