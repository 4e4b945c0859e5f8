"""The tower in the kernels against the encoder in torch: vectors, scores, sums with other parts, searches."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("beamtree.native._kernels")

from beamtree import native
from beamtree.data.requests import Histories, Requests
from beamtree.errors import InputError
from beamtree.model.recurrent import Recurrent
from beamtree.model.self_attention import SelfAttention
from beamtree.model.sequence_encoder import SequenceEncoder
from beamtree.native.score import KernelScore
from beamtree.native.tower import TowerArrays
from tests.native.random_towers import PlainTower, random_tower
from tests.native.small_models import random_tree

HISTORIES = [[], [3], [3, 3, 3, 3], [5, 1, 5, 0, 3, 5], [*range(20), *range(20), 7, 7]]


MakeEncoder = Callable[[int], SequenceEncoder]
"""From a width."""


def attentive(width: int) -> SelfAttention:
    return SelfAttention(width, layers=2, heads=1, history_length=15)


def recurrent(width: int) -> Recurrent:
    return Recurrent(width, hidden=2 * width, layers=2, history_length=15)


KINDS = pytest.mark.parametrize("make", [attentive, recurrent])


def packed(tower: PlainTower) -> TowerArrays:
    return TowerArrays.pack(tower.arrays(), tower.tree)


def small_tower(seed: int = 0, *, width: int = 12, items: int = 300, make: MakeEncoder = attentive) -> PlainTower:
    generator = np.random.default_rng(seed)
    tree = random_tree(generator, items=items, vacant=20, branching=3)
    return random_tower(generator, tree, make(width))


def assert_encoded_as_in_torch(tower: PlainTower, generator: np.random.Generator) -> None:
    """Histories of all lengths around that which is read."""
    length = tower.encoder.history_length
    lengths = [0, 1, 2, length - 1, length, length + 1, 2 * length + 5]
    long = [generator.integers(0, tower.tree.num_items, each).tolist() for each in lengths]
    histories = Histories.of_lists([*HISTORIES, *long])
    encoded = packed(tower).encode(histories)
    assert encoded.dtype == np.float32
    np.testing.assert_allclose(encoded, tower.encode(histories), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("width", "hidden", "layers", "history_length"),
    [
        (1, 1, 1, 1),
        (2, 5, 3, 4),
        (3, 8, 2, 50),
        (8, 16, 1, 24),
        (10, 9, 2, 25),
        (33, 31, 2, 30),
        (64, 128, 1, 100),
        (130, 40, 2, 13),
    ],
)
def test_a_recurrent_network_encodes_as_in_torch(width: int, hidden: int, layers: int, history_length: int) -> None:
    generator = np.random.default_rng([width, hidden])
    tree = random_tree(generator, items=70, vacant=9, branching=3)
    encoder = Recurrent(width, hidden=hidden, layers=layers, history_length=history_length)
    tower = random_tower(generator, tree, encoder)
    assert_encoded_as_in_torch(tower, generator)
    before = packed(tower).encode(Histories.of_lists(HISTORIES))
    encoder.compact()
    assert_encoded_as_in_torch(tower, generator)
    compacted = packed(tower).encode(Histories.of_lists(HISTORIES))
    assert width * history_length == 1 or not np.array_equal(before, compacted)
    np.testing.assert_allclose(before, compacted, atol=0.1)


@pytest.mark.parametrize("times", [1e3, -1e3, 0.0])
def test_gates_that_are_wide_open_or_shut_do_not_overflow(times: float) -> None:
    tower = small_tower(make=recurrent)
    with torch.no_grad():
        tower.encoder.get_parameter("gru.weight_ih_l0").mul_(times)
    assert_encoded_as_in_torch(tower, np.random.default_rng(5))


@pytest.mark.parametrize(
    ("width", "heads", "layers", "history_length"),
    [
        (1, 1, 1, 1),
        (2, 2, 3, 4),
        (3, 1, 2, 50),
        (7, 7, 2, 9),
        (8, 2, 1, 24),
        (10, 2, 2, 25),
        (24, 3, 4, 69),
        (33, 3, 2, 30),
        (64, 2, 2, 100),
        (72, 4, 1, 49),
        (130, 10, 2, 13),
    ],
)
def test_histories_of_any_length_are_encoded_as_in_torch(
    width: int, heads: int, layers: int, history_length: int
) -> None:
    generator = np.random.default_rng([width, heads])
    tree = random_tree(generator, items=70, vacant=9, branching=3)
    encoder = SelfAttention(width, layers=layers, heads=heads, history_length=history_length)
    assert_encoded_as_in_torch(random_tower(generator, tree, encoder), generator)


@pytest.mark.parametrize(("name", "times"), [("queries_keys_values.weight", 60.0), ("recency", 1e4), ("recency", -1e4)])
def test_attention_that_is_sure_of_one_position_does_not_overflow(name: str, times: float) -> None:
    generator = np.random.default_rng(5)
    tree = random_tree(generator, items=40)
    tower = random_tower(generator, tree, SelfAttention(16, layers=2, heads=2, history_length=30))
    for layer in range(2):
        tower.encoder.state_dict()[f"layers.{layer}.{name}"] *= times
    histories = Histories.of_lists([generator.integers(0, 40, 30).tolist()])
    encoded = packed(tower).encode(histories)
    assert np.isfinite(encoded).all()
    np.testing.assert_allclose(encoded, tower.encode(histories), rtol=1e-3, atol=1e-3)


def test_an_empty_history_is_one_absent_item() -> None:
    tower = small_tower()
    vectors = packed(tower).encode(Histories.of_lists([[], [0]]))
    tower.node_table[tower.tree.level_offsets[tower.tree.height] + tower.tree.leaf_of_item[0]] = 0.0
    np.testing.assert_array_equal(vectors[0], packed(tower).encode(Histories.of_lists([[0]]))[0])
    assert not np.array_equal(vectors[0], vectors[1])


@pytest.mark.parametrize("width", [2, 8, 13, 64])
def test_scores_on_every_level_are_weighted_inner_products(width: int) -> None:
    tower = small_tower(width, width=width)
    score = KernelScore(tower.tree, tower=packed(tower))
    histories = Histories.of_lists(HISTORIES)
    requests = score.requests(Requests(histories))
    for request, vector in enumerate(tower.encode(histories)):
        for level, size in enumerate(tower.tree.level_sizes):
            nodes = np.arange(size)[::-1].copy()
            found = score.scores(requests, request=request, level=level, nodes=nodes)
            np.testing.assert_allclose(found, tower.scores(vector, level, nodes), atol=1e-3)


@pytest.mark.parametrize("width", [5, 64])
def test_a_node_scores_the_same_bytes_in_any_company(width: int) -> None:
    tower = small_tower(width, width=width)
    score = KernelScore(tower.tree, tower=packed(tower))
    requests = score.requests(Requests(Histories.of_lists([[1, 2, 3]])))
    level = tower.tree.height
    nodes = np.arange(tower.tree.num_leaves)
    together = score.scores(requests, request=0, level=level, nodes=nodes)
    alone = [score.scores(requests, request=0, level=level, nodes=nodes[node : node + 1]) for node in nodes]
    assert together.tobytes() == np.concatenate(alone).tobytes()
    scanned, scores = score.exact_scan(requests, k=9)
    assert scores[0].tobytes() == together[tower.tree.leaf_of_item[scanned[0]]].tobytes()


@KINDS
def test_threads_and_company_do_not_change_a_byte(make: MakeEncoder) -> None:
    tower = small_tower(3, width=20, items=2000, make=make)
    generator = np.random.default_rng(3)
    histories = Histories.of_lists([generator.integers(0, 2000, size).tolist() for size in range(12)])
    score = KernelScore(tower.tree, tower=packed(tower))
    asked = score.requests(Requests(histories))
    one_by_one = [score.requests(Requests(histories.take(slice(i, i + 1)))) for i in range(12)]
    before, results = native.threads(), []
    try:
        for threads in (1, 2, 5):
            native.set_threads(threads)
            items, scores = score.beam_search(asked, k=10, beam_widths=np.full(12, 50))
            alone = [score.beam_search(each, k=10, beam_widths=np.array([50])) for each in one_by_one]
            scanned = score.exact_scan(asked, k=10)[1]
            results.append((packed(tower).encode(histories).tobytes(), scanned.tobytes(), items.tobytes()))
            assert b"".join(each[0].tobytes() for each in alone) == items.tobytes()
            assert b"".join(each[1].tobytes() for each in alone) == scores.tobytes()
    finally:
        native.set_threads(before)
    assert results[1:] == results[:1] * 2


@KINDS
def test_a_beam_as_wide_as_the_leaves_is_an_exact_scan(make: MakeEncoder) -> None:
    tower = small_tower(4, make=make)
    score = KernelScore(tower.tree, tower=packed(tower))
    asked = score.requests(Requests(Histories.of_lists(HISTORIES)))
    wide = score.beam_search(asked, k=20, beam_widths=np.full(len(HISTORIES), tower.tree.num_leaves))
    exact = score.exact_scan(asked, k=20)
    np.testing.assert_array_equal(wide[0], exact[0])
    np.testing.assert_array_equal(wide[1], exact[1])


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda arrays: arrays.pop(name)


def changed(name: str, array: np.ndarray) -> Callable[[dict[str, Any]], object]:
    return lambda arrays: arrays.update({name: array})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            without("node_table"),
            r"Expected the array node_table of shape \(\d+, any\), got none of that name",
        ),
        (without("encoder.layers.1.merge.bias"), r"the array encoder\.layers\.1\.merge\.bias of shape \(12\)"),
        (without("encoder.layers.0.attention_norm.weight"), r"encoder\.layers\.0\.attention_norm\.weight"),
        (changed("weight", np.ones(2, dtype=np.float32)), r"weight of shape \(\), got \(2,\)"),
        (changed("weight", np.array(1.0)), "weight as float32, got float64"),
        (
            changed("node_table", np.zeros((3, 12), dtype=np.float32)),
            r"node_table of shape \(\d+, any\), got \(3, 12\)",
        ),
        (without("encoder.layers.0.recency"), r"the array encoder\.layers\.0\.recency of shape \(any, any\)"),
        (without("encoder.layers.1.recency"), r"the array encoder\.layers\.1\.recency of shape \(1, 15\)"),
        (
            changed("encoder.layers.0.recency", np.zeros((0, 15), dtype=np.float32)),
            r"recency of shape \(any, any\), got \(0, 15\)",
        ),
        (
            changed("encoder.layers.1.recency", np.zeros((2, 15), dtype=np.float32)),
            r"layers\.1\.recency of shape \(1, 15\), got \(2, 15\)",
        ),
        (
            changed("encoder.layers.0.recency", np.zeros((5, 15), dtype=np.float32)),
            "number of heads that divides the tower's width of 12, got 5",
        ),
        (
            changed("encoder.layers.0.widen.weight", np.zeros((12, 48), dtype=np.float32)),
            r"widen\.weight of shape \(48, 12\), got \(12, 48\)",
        ),
    ],
)
def test_arrays_that_are_no_tower_are_refused(spoil: Callable[[dict[str, Any]], object], message: str) -> None:
    tower = small_tower()
    arrays: dict[str, Any] = tower.arrays()
    spoil(arrays)
    with pytest.raises(InputError, match=message):
        TowerArrays.pack(arrays, tower.tree)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without("encoder.length"), r"the array encoder\.length of shape \(\), got none"),
        (changed("encoder.length", np.array(0)), "encoder.length as a whole number of items, at least 1, got 0"),
        (changed("encoder.length", np.array(7.5)), "encoder.length as a whole number of items, at least 1, got 7.5"),
        (without("encoder.gru.bias_hh_l1"), r"encoder\.gru\.bias_hh_l1 of shape \(72\), got none"),
        (
            changed("encoder.gru.weight_hh_l0", np.zeros((72, 23), dtype=np.float32)),
            r"encoder\.gru\.\w+ of shape \(69, 12\), got \(72, 12\)",
        ),
        (changed("encoder.project.bias", np.zeros(12)), r"encoder\.project\.bias as float32, got float64"),
    ],
)
def test_arrays_that_are_no_recurrent_encoder_are_refused(
    spoil: Callable[[dict[str, Any]], object], message: str
) -> None:
    tower = small_tower(make=recurrent)
    arrays: dict[str, Any] = tower.arrays()
    spoil(arrays)
    with pytest.raises(InputError, match=message):
        TowerArrays.pack(arrays, tower.tree)


def test_a_tower_belongs_to_one_tree_and_reads_only_its_items() -> None:
    tower, other = small_tower(1), small_tower(2)
    with pytest.raises(ValueError, match="tower: made for another tree"):
        KernelScore(other.tree, tower=packed(tower))
    with pytest.raises(ValueError, match="histories: expected items of the tree"):
        packed(tower).encode(Histories.of_lists([[300]]))
