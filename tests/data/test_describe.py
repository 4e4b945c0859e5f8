import polars as pl
import pytest

from beamtree.data.describe import LengthBin, describe_log
from beamtree.data.interactions import InteractionLog, read_interactions


def log_of(*rows: tuple[int, int, float]) -> InteractionLog:
    return read_interactions(pl.DataFrame(rows, schema=["user_id", "item_id", "timestamp"], orient="row"))


DAY = 86_400
START = 1_500_000_000
LOG = log_of(
    *[(1, item % 3, START + item * DAY) for item in range(5)],
    (2, 0, START),
    (2, 7, START),
    (3, 0, START + 9 * DAY),
)


def test_counts_and_shares_worked_out_by_hand() -> None:
    found = describe_log(LOG, min_interactions=2)
    whole, kept = found.profile, found.kept
    assert (whole.users, whole.items, whole.interactions) == (3, 4, 8)
    assert whole.density == pytest.approx(6 / 12)
    assert whole.repeat_share == pytest.approx(2 / 8)
    assert whole.tied_share == pytest.approx(2 / 8)
    assert kept is not None
    assert (kept.users, kept.items, kept.interactions) == (2, 4, 7)
    assert kept.density == pytest.approx(5 / 8)
    assert kept.repeat_share == pytest.approx(2 / 7)
    assert describe_log(LOG) == found, "two interactions are asked for by default"
    assert describe_log(LOG, min_interactions=6).kept is None


def test_what_is_kept_is_measured_on_the_items_that_are_left() -> None:
    """Item 5 belongs to a user who is dropped: of the ids 1 and 9, the tied ones rise."""
    found = describe_log(log_of((1, 1, 0), (1, 9, 0), (2, 5, 0)), min_interactions=2)
    assert found.kept is not None
    assert (found.kept.items, found.kept.tied_pairs, found.kept.sorted_share) == (2, 1, 1.0)


def test_history_lengths_fall_into_powers_of_two() -> None:
    found = describe_log(LOG)
    assert found.length_bins == (LengthBin(1, 1, 1), LengthBin(2, 3, 1), LengthBin(4, 7, 1))
    assert (found.length_quantiles[0.0], found.length_quantiles[0.5], found.length_quantiles[1.0]) == (1, 2, 5)
    edges = describe_log(log_of(*[(user, item, item) for user in (3, 4, 8) for item in range(user)]))
    assert edges.length_bins == (LengthBin(2, 3, 1), LengthBin(4, 7, 1), LengthBin(8, 15, 1))


def test_the_popularity_curve_counts_the_most_popular_first() -> None:
    log = log_of(*[(user, 0, user) for user in range(6)], *[(0, item, 10 + item) for item in range(1, 5)])
    curve = describe_log(log).popularity_curve
    assert curve[0.2] == pytest.approx(0.6)
    assert curve[0.01] == pytest.approx(0.6)
    assert curve[1.0] == pytest.approx(1.0)


@pytest.mark.parametrize("factor", [1, 1000])
def test_the_time_span_is_dated_where_times_are_dates(factor: int) -> None:
    found = describe_log(log_of((1, 1, START * factor), (1, 2, (START + DAY) * factor)))
    assert (found.first_date, found.last_date) == ("2017-07-14 02:40:00", "2017-07-15 02:40:00")
    assert found.first_time == START * factor


def test_a_log_that_only_counts_has_no_dates() -> None:
    found = describe_log(log_of((1, 1, 0), (1, 2, 41)))
    assert (found.first_date, found.last_date, found.last_time) == (None, None, 41)
