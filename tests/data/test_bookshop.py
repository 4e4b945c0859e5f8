"""The made-up bookshop: complete tables, the same shop from the same seed, and readers with habits."""

import polars as pl
import pytest

from beamtree.data.bookshop import GENRES, Bookshop, make_bookshop


@pytest.fixture(scope="module")
def shop() -> Bookshop:
    return make_bookshop(3_000, 2_000, seed=0)


def test_tables_fit_together(shop: Bookshop) -> None:
    items, log = shop.items, shop.interactions
    assert items["item_id"].to_list() == list(range(1, 3_001))
    assert set(items["category"]) <= set(GENRES)
    assert items.null_count().sum_horizontal().item() == 0
    assert items["title"].n_unique() > 2_900
    assert log["user_id"].n_unique() == 2_000
    assert set(log["item_id"]) <= set(items["item_id"])
    assert log.select("user_id", "item_id").is_duplicated().sum() == 0
    per_reader = log.group_by("user_id").len()["len"]
    assert 1 <= per_reader.min() <= per_reader.max() <= 45  # type: ignore[operator]
    later = log.select((pl.col("timestamp").diff().over("user_id") > 0).drop_nulls().all()).item()
    assert later is True


def test_readers_go_on_with_authors_and_genres(shop: Bookshop) -> None:
    """Of two books read one after the other, far more are by one author and of one genre than by chance."""
    read = shop.interactions.join(shop.items, on="item_id", maintain_order="left").with_columns(
        before_author=pl.col("author").shift().over("user_id"), before_genre=pl.col("category").shift().over("user_id")
    )
    pairs = read.drop_nulls()
    same = pairs.select(
        author=(pl.col("author") == pl.col("before_author")).mean(),
        genre=(pl.col("category") == pl.col("before_genre")).mean(),
    ).row(0)
    assert same[0] > 0.1
    assert same[1] > 0.5


def test_the_seed_decides(shop: Bookshop) -> None:
    again, other = make_bookshop(3_000, 2_000, seed=0), make_bookshop(3_000, 2_000, seed=1)
    assert again.interactions.equals(shop.interactions)
    assert again.items.equals(shop.items)
    assert not other.interactions.equals(shop.interactions)
