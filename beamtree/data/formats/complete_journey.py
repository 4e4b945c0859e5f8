"""The Complete Journey, groceries: transactions.parquet and products.parquet."""

from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TIMESTAMP, TITLE, USER_ID
from beamtree.data.formats.original import Original, require_original
from beamtree.data.parse import parse_times
from beamtree.data.ties import shuffle_within

BASKET_ID: Final = "basket_id"
PRICE: Final = "price"
_SHUFFLE_SEED: Final = 0


def read_complete_journey(source: Path) -> Original:
    """What households bought, in the order of time; inside a basket in a seeded random order.

    All rows of a basket share one time, and the original lists them by product: kept so, the next item would leak.
    The price of an item is the median of what one of it cost.
    """
    transactions = pl.read_parquet(
        require_original(source, "transactions.parquet")[0],
        columns=["household_id", "product_id", BASKET_ID, "transaction_timestamp", "quantity", "sales_value"],
    )
    interactions = transactions.select(
        pl.col("household_id").alias(USER_ID),
        pl.col("product_id").alias(ITEM_ID),
        parse_times(transactions["transaction_timestamp"]).alias(TIMESTAMP),
        BASKET_ID,
    )
    products = pl.read_parquet(require_original(source, "products.parquet")[0])
    items = products.select(
        pl.col("product_id").alias(ITEM_ID),
        pl.col("product_category").alias(CATEGORY),
        pl.col("product_type").alias(TITLE),
        "department",
        "brand",
    ).join(_prices(transactions), on=ITEM_ID, how="left", maintain_order="left")
    shuffled = shuffle_within(interactions, keys=(USER_ID, TIMESTAMP, BASKET_ID), seed=_SHUFFLE_SEED)
    return Original(shuffled, items)


def _prices(transactions: pl.DataFrame) -> pl.DataFrame:
    """item_id and price, the median over all purchases of what was paid over the number bought."""
    bought = transactions.filter(pl.col("quantity") > 0)
    price = (pl.col("sales_value") / pl.col("quantity")).median().alias(PRICE)
    return bought.group_by(pl.col("product_id").alias(ITEM_ID), maintain_order=True).agg(price)
