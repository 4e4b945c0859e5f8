import numpy as np
import pytest

from beamtree.diagnostics.averages import average_over_histories, average_over_users


def test_the_histories_of_one_user_count_as_one() -> None:
    """User 0 has 1, 3 and 5, user 1 has 7: the mean is that of 3 and 7, not that of four numbers."""
    found = average_over_histories(np.array([1.0, 3.0, 5.0, 7.0]), np.array([0, 0, 0, 1]))
    assert found is not None
    assert found.mean == 5.0
    assert found.standard_error == pytest.approx(np.sqrt(8.0) / np.sqrt(2.0))


def test_histories_without_a_value_are_left_out() -> None:
    found = average_over_histories(np.array([np.nan, 3.0, 7.0]), np.array([0, 0, 4]))
    assert found is not None
    assert found.mean == 5.0
    assert average_over_histories(np.array([np.nan]), np.array([0])) is None


def test_a_single_user_has_no_standard_error() -> None:
    assert average_over_users(np.array([2.0])).standard_error is None
