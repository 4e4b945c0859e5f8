"""The Complete Journey, groceries: transactions.parquet and products.parquet."""

from pathlib import Path
from typing import Final

import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TIMESTAMP, TITLE, USER_ID
from beamtree.data.formats.original import Original, require_original
from beamtree.data.parse import parse_times
from beamtree.data.ties import shuffle_within

BASKET_ID: Final = "basket_id"
_SHUFFLE_SEED: Final = 0


def read_complete_journey(source: Path) -> Original:
    """What households bought, in the order of time; inside a basket in a seeded random order.

    All rows of a basket share one time, and the original lists them by product: kept so, the next item would leak.
    """
    transactions = pl.read_parquet(
        require_original(source, "transactions.parquet")[0],
        columns=["household_id", "product_id", BASKET_ID, "transaction_timestamp"],
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
    )
    shuffled = shuffle_within(interactions, keys=(USER_ID, TIMESTAMP, BASKET_ID), seed=_SHUFFLE_SEED)
    return Original(shuffled, items)
