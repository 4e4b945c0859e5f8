import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beamtree.data.vocabulary import Vocabulary
from beamtree.errors import DataError, UnknownIdsError

integers = st.lists(st.integers(-(2**63), 2**63 - 1), unique=True, max_size=50)
texts = st.lists(st.text(max_size=5), unique=True, max_size=50)


@given(integers | texts)
def test_encoding_and_decoding_are_inverse(ids: list[int] | list[str]) -> None:
    dtype = pl.String if ids and isinstance(ids[0], str) else pl.Int64
    vocabulary = Vocabulary(pl.Series(ids, dtype=dtype))
    dense = vocabulary.encode(vocabulary.ids)
    assert dense.dtype == np.int32
    assert dense.tolist() == list(range(len(ids)))
    assert vocabulary.decode(dense[::-1]).to_list() == ids[::-1]


@pytest.mark.parametrize("kind", ["few", "many"])
def test_unknown_ids_and_nulls_become_minus_one(kind: str) -> None:
    ids = pl.Series(["b", "a", "d"]) if kind == "many" else pl.Series([f"x{n}" for n in range(100)] + ["b", "a", "d"])
    vocabulary = Vocabulary(ids)
    start = len(ids) - 3
    assert vocabulary.encode(["a", "zz", None, "b", "d", ""]).tolist() == [start + 1, -1, -1, start, start + 2, -1]


def test_one_request_finds_the_same_as_a_join() -> None:
    generator = np.random.default_rng(0)
    vocabulary = Vocabulary(pl.Series(generator.permutation(np.arange(-500, 500))))
    wanted = generator.integers(-600, 600, 200)
    few = np.concatenate([vocabulary.encode(wanted[at : at + 10]) for at in range(0, 200, 10)])
    many = vocabulary.encode(np.tile(wanted, 5))[:200]
    assert few.tolist() == many.tolist()
    assert (few == -1).any()


def test_ids_keep_their_type_and_spelling() -> None:
    assert Vocabulary(pl.Series(["007", "7"])).decode([0, 1]).to_list() == ["007", "7"]
    assert Vocabulary(pl.Series([3, 1], dtype=pl.Int16)).ids.dtype == pl.Int64


def test_minus_one_decodes_to_null_and_other_dense_ids_are_refused() -> None:
    vocabulary = Vocabulary(pl.Series([10, 20]))
    assert vocabulary.decode([1, -1]).to_list() == [20, None]
    with pytest.raises(DataError, match="from 0 to 1, got 2"):
        vocabulary.decode([2])
    with pytest.raises(DataError, match="got -2"):
        vocabulary.decode(np.array([-2]))


def test_empty_vocabulary_and_empty_request() -> None:
    assert Vocabulary(pl.Series([], dtype=pl.Int64)).encode([1, 2]).tolist() == [-1, -1]
    assert Vocabulary(pl.Series(["a"])).encode([]).tolist() == []


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (pl.Series([1, 2, 1]), "1 occurs again"),
        (pl.Series(["a", None]), "no nulls, got 1"),
        (pl.Series([1.5]), "got Float64"),
    ],
)
def test_what_is_no_vocabulary_is_refused(ids: pl.Series, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Vocabulary(ids)


def test_ids_of_the_other_kind_are_refused_instead_of_matching_nothing() -> None:
    with pytest.raises(DataError, match="are integers, got '1'"):
        Vocabulary(pl.Series([1, 2])).encode(["1"])
    with pytest.raises(DataError, match="are texts, got 1"):
        Vocabulary(pl.Series(["1"])).encode(np.array([1]))
    with pytest.raises(DataError, match="mixture"):
        Vocabulary(pl.Series([1, 2])).encode([1, "a"])


def test_command_line_text_becomes_an_id_of_the_right_type() -> None:
    assert Vocabulary(pl.Series([5])).parse("5") == 5
    assert Vocabulary(pl.Series(["5"])).parse("05") == "05"
    with pytest.raises(UnknownIdsError, match="'u7'"):
        Vocabulary(pl.Series([5])).parse("u7")
