"""Raw ids there and back, one by one."""

import numpy as np
import polars as pl
import pytest

from beamtree.data.raw_ids import RawIds, id_list
from beamtree.data.vocabulary import Id, Vocabulary


@pytest.mark.parametrize("raw", [[7, 3, -5, 2**63 - 1], ["b", "", "a/b", "é"]])
def test_ids_there_and_back(raw: list[Id]) -> None:
    ids = RawIds(Vocabulary(pl.Series(raw)))
    unknown: Id = 8 if ids.holds_integers else "c"
    assert ids.encode([raw[2], unknown, raw[0], raw[3]]).tolist() == [2, -1, 0, 3]
    assert ids.decode(np.array([3, 1])) == [raw[3], raw[1]]
    assert ids.first_of_wrong_type([raw[0], "7" if ids.holds_integers else 7]) in ("7", 7)
    assert ids.first_of_wrong_type(raw) is None


def test_ids_in_addresses() -> None:
    integers = RawIds(Vocabulary(pl.Series([1, 2])))
    assert integers.parse("-17") == -17
    assert integers.parse("40576.0") == 40576
    for text in ("", "1.5", "1.", "1_0", "+1", " 1", "٣", "1e3", str(2**63), "9" * 5000):
        assert integers.parse(text) is None, text
    assert RawIds(Vocabulary(pl.Series(["1"]))).parse("1_0") == "1_0"


def test_a_log_may_spell_the_ids_otherwise() -> None:
    integers = RawIds(Vocabulary(pl.Series([7, 3])))
    assert integers.encode_respelled(["3", "x", "7", "8"]).tolist() == [1, 0]
    assert integers.encode_respelled(np.array([7, 8, 3])).tolist() == [0, 1]
    texts = RawIds(Vocabulary(pl.Series(["7", "3"])))
    assert texts.encode_respelled(np.array([3, 9, 7])).tolist() == [1, 0]
    assert texts.encode_respelled(["7", "9"]).tolist() == [0]


@pytest.mark.parametrize("is_numpy", [True, False])
def test_ids_beyond_64_bits_with_sign_are_unknown_and_not_wrapped(*, is_numpy: bool) -> None:
    integers = RawIds(Vocabulary(pl.Series([-1, 5])))
    column = np.array([2**64 - 1, 5], dtype=np.uint64)
    given = column if is_numpy else pl.Series(column)
    listed = integers.check(id_list(given, what="ids"), what="ids")
    assert integers.encode(listed).tolist() == [-1, 1], "as 64 bits with sign the first would be -1, which is known"
