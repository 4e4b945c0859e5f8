from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

pytest.importorskip("beamtree.native._kernels")

from hypothesis import given, settings
from hypothesis import strategies as st

from beamtree import native
from beamtree.data.requests import Histories, Requests
from beamtree.data.sequences import Sequences
from beamtree.native.attention import AttentionArrays
from beamtree.native.score import KernelScore
from tests.native.plain_network import Shape
from tests.native.small_models import asked_by, random_attention, random_histories, random_tree

SHAPE = Shape()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    items=st.integers(1, 400),
    vacant=st.integers(0, 90),
    branching=st.integers(2, 6),
    k=st.integers(1, 12),
    beam=st.integers(1, 60),
    separate=st.booleans(),
    layer_norm=st.booleans(),
    filters=st.sampled_from(["none", "allowed", "excluded", "both"]),
)
def test_search_and_scan_equal_the_reference(
    seed: int,
    items: int,
    vacant: int,
    branching: int,
    k: int,
    beam: int,
    separate: bool,
    layer_norm: bool,
    filters: str,
) -> None:
    generator = np.random.default_rng(seed)
    shape = Shape(normalisation="layer" if layer_norm else "none")
    tree = random_tree(generator, items=items, vacant=vacant, branching=branching)
    attention, reference = random_attention(generator, tree, shape, separate=separate)
    histories = random_histories(generator, tree, shape, count=3)
    allowed = generator.random(items) < 0.4 if filters in ("allowed", "both") else None
    excluded = None
    if filters in ("excluded", "both"):
        excluded = Sequences(generator.integers(-1, items, 90).astype(np.int32), np.array([0, 0, 20, 90]))
    requests = Requests(Histories.of_rows(histories), excluded=excluded, allowed=allowed)
    score = KernelScore(tree, attention=attention)
    asked = score.requests(requests)

    expected = reference.search(requests, k=k, beam_width=beam)
    found, scores = score.beam_search(asked, k=k, beam_widths=np.full(3, max(beam, k)))
    np.testing.assert_array_equal(found, expected.items)
    np.testing.assert_allclose(scores, expected.scores, atol=2e-4)

    expected = reference.scan(requests, k=k)
    found, scores = score.exact_scan(asked, k=k)
    np.testing.assert_array_equal(found, expected.items)
    np.testing.assert_allclose(scores, expected.scores, atol=2e-4)


def test_equal_scores_rank_by_rising_leaf() -> None:
    generator = np.random.default_rng(0)
    tree = random_tree(generator, items=100)
    attention, _ = random_attention(generator, tree, SHAPE)
    ones = np.ones((tree.num_nodes, SHAPE.width), dtype=np.float32)
    flat = KernelScore(tree, attention=AttentionArrays(attention.network, ones))
    history = flat.requests(asked_by(np.zeros((1, SHAPE.history), dtype=np.int32)))
    found, scores = flat.beam_search(history, k=5, beam_widths=np.array([20]))
    assert len(set(scores[0])) == 1
    np.testing.assert_array_equal(found[0], tree.item_at_leaf[:5])


def test_a_beam_as_wide_as_the_leaves_is_an_exact_scan() -> None:
    generator = np.random.default_rng(1)
    tree = random_tree(generator, items=300, vacant=40, branching=3)
    attention, _ = random_attention(generator, tree, SHAPE)
    histories = random_histories(generator, tree, SHAPE, count=4)
    score = KernelScore(tree, attention=attention)
    asked = score.requests(asked_by(histories))
    wide, wide_scores = score.beam_search(asked, k=30, beam_widths=np.full(4, 340))
    exact, exact_scores = score.exact_scan(asked, k=30)
    np.testing.assert_array_equal(wide, exact)
    np.testing.assert_array_equal(wide_scores, exact_scores)


def test_one_request_and_many_give_the_same_bytes_for_any_number_of_threads() -> None:
    generator = np.random.default_rng(2)
    tree = random_tree(generator, items=3000)
    attention, _ = random_attention(generator, tree, SHAPE)
    histories = random_histories(generator, tree, SHAPE, count=9)
    score = KernelScore(tree, attention=attention)
    asked, one_by_one = score.requests(asked_by(histories)), [score.requests(asked_by(row[None])) for row in histories]
    before = native.threads()
    results = []
    try:
        for threads in (1, 2, 5):
            native.set_threads(threads)
            results.append(score.beam_search(asked, k=10, beam_widths=np.full(9, 50)))
            alone = [score.beam_search(single, k=10, beam_widths=np.array([50])) for single in one_by_one]
            results.append((np.concatenate([items for items, _ in alone]), np.concatenate([s for _, s in alone])))
    finally:
        native.set_threads(before)
    for items, scores in results[1:]:
        assert items.tobytes() == results[0][0].tobytes()
        assert scores.tobytes() == results[0][1].tobytes()


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_the_node_table_may_be_a_mapped_file_of_either_precision(tmp_path: Path, dtype: type) -> None:
    generator = np.random.default_rng(3)
    tree = random_tree(generator, items=500)
    attention, _ = random_attention(generator, tree, SHAPE)
    rounded: NDArray[Any] = np.asarray(attention.node_table).astype(dtype)
    np.save(tmp_path / "table.npy", rounded)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    histories = random_histories(generator, tree, SHAPE, count=3)
    widths = np.full(3, 30)
    of_file, of_memory = (
        KernelScore(tree, attention=AttentionArrays(attention.network, table))
        for table in (mapped, rounded.astype(np.float32))
    )
    found = of_file.beam_search(of_file.requests(asked_by(histories)), k=10, beam_widths=widths)
    expected = of_memory.beam_search(of_memory.requests(asked_by(histories)), k=10, beam_widths=widths)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_ids_out_of_range_are_refused() -> None:
    generator = np.random.default_rng(4)
    tree = random_tree(generator, items=10)
    attention, _ = random_attention(generator, tree, SHAPE)
    score = KernelScore(tree, attention=attention)
    asked = score.requests(Requests(Histories.of_lists([[10]])))
    with pytest.raises(ValueError, match="histories: expected items of the tree"):
        score.beam_search(asked, k=1, beam_widths=np.array([1]))
    with pytest.raises(ValueError, match="node_table: expected 25 rows, got 3"):
        KernelScore(tree, attention=AttentionArrays(attention.network, np.zeros((3, SHAPE.width), dtype=np.float32)))


@pytest.mark.parametrize("k", [0, -1, 2**31, 2**62, 2**63 - 1])
@pytest.mark.parametrize("requests", [1, 4])
def test_more_items_than_an_answer_can_hold_are_refused(k: int, requests: int) -> None:
    """The number of values is a product, which must not wrap around: the kernels would write past the end."""
    generator = np.random.default_rng(5)
    tree = random_tree(generator, items=10)
    attention, _ = random_attention(generator, tree, SHAPE)
    score = KernelScore(tree, attention=attention)
    asked = score.requests(Requests(Histories.of_lists(requests * [[1, 2]])))
    with pytest.raises(ValueError, match=r"k: expected from 1 to 2\^31 - 1"):
        score.exact_scan(asked, k=k)
    with pytest.raises(ValueError, match=r"k: expected from 1 to 2\^31 - 1"):
        score.beam_search(asked, k=k, beam_widths=np.full(requests, 3))


def misaligned(array: NDArray[Any]) -> NDArray[Any]:
    """The same values one byte after the place where numbers begin, as in a file with an odd header."""
    content = np.zeros(array.nbytes + 1, dtype=np.uint8)
    content[1:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return content[1:].view(array.dtype).reshape(array.shape)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_misaligned_tables_are_refused(dtype: type) -> None:
    generator = np.random.default_rng(6)
    tree = random_tree(generator, items=10)
    attention, _ = random_attention(generator, tree, SHAPE)
    table = misaligned(np.asarray(attention.node_table).astype(dtype))
    with pytest.raises(ValueError, match="node_table: expected an array that is aligned in memory"):
        AttentionArrays(attention.network, table)
