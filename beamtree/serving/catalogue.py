"""Items by text, and the columns of the item table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TITLE
from beamtree.data.raw_ids import RawIds
from beamtree.serving.conditions import check_column
from beamtree.serving.limits import LISTED_VALUES
from beamtree.types import AnyArray, BoolArray, Int32Array, Int64Array, IntArray

Row = dict[str, Any]


class Catalogue:
    """The items of one model. popularity: (items,); most_popular: dense ids of the items that may be returned.

    A search finds only these; a look-up by id finds removed items too.
    """

    def __init__(
        self, item_table: pl.DataFrame, *, ids: RawIds, popularity: AnyArray, most_popular: Int32Array
    ) -> None:
        self.item_table = item_table
        self.ids = ids
        self.popularity = popularity
        self.most_popular = most_popular
        self._is_present = np.zeros(len(item_table), dtype=np.bool_)
        self._is_present[most_popular] = True
        self._lowered = [
            item_table[name].cast(pl.String).fill_null("").str.to_lowercase()
            for name in (ITEM_ID, TITLE)
            if name in item_table.columns
        ]

    @property
    def default_columns(self) -> list[str]:
        """Title and category, where anything is known."""
        table = self.item_table
        return [name for name in (TITLE, CATEGORY) if name in table.columns and table[name].null_count() < len(table)]

    def check_columns(self, columns: Sequence[str]) -> None:
        """ApiError for a column that does not exist."""
        for name in columns:
            check_column(name, self.item_table)

    def column_values(self, items: IntArray, columns: Sequence[str]) -> list[Row]:
        """The requested columns of each item, by name."""
        return (
            self.item_table.select(list(dict.fromkeys(columns)))[items].to_dicts() if columns else [{} for _ in items]
        )

    def rows(self, items: IntArray, columns: Sequence[str]) -> list[Row]:
        """item_id, popularity and columns of each item."""
        popularity = self.popularity[items].tolist()
        return [
            {"item_id": item_id, "popularity": count, "columns": values}
            for item_id, count, values in zip(
                self.ids.decode(items), popularity, self.column_values(items, columns), strict=True
            )
        ]

    def holding(self, text: str) -> BoolArray:
        """(items,): whether id or title contains a text, ignoring case."""
        holds = np.zeros(len(self.item_table), dtype=np.bool_)
        for column in self._lowered:
            holds |= column.str.contains(text.lower(), literal=True).to_numpy()
        return holds

    def find(self, text: str, *, limit: int) -> tuple[Int64Array, int]:
        """Items whose id or title equals a text, starts with it, or contains it, in this order, popular ones first.

        Case is ignored; an empty text finds the most popular items. Returns at most `limit` items, and how many match.
        """
        wanted = text.lower()
        if not wanted:
            return self.most_popular[:limit].astype(np.int64), len(self.most_popular)
        found = np.flatnonzero(self.holding(wanted) & self._is_present)
        closeness = np.full(len(found), 2)
        for column in self._lowered:
            candidates = column.gather(found)
            closeness = np.minimum(closeness, np.where(candidates.str.starts_with(wanted).to_numpy(), 1, 2))
            closeness = np.where((candidates == wanted).to_numpy(), 0, closeness)
        order = np.lexsort((found, -self.popularity[found], closeness))
        return found[order[:limit]], len(found)

    def describe_columns(self) -> list[Row]:
        """Name, type and, where they are few, the values of each column of the item table."""
        described: list[Row] = []
        for column in self.item_table.iter_columns():
            values = None
            if not column.dtype.is_nested() and column.name != ITEM_ID and column.n_unique() <= LISTED_VALUES:
                values = count_values(column)
            described.append({"name": column.name, "type": _type_name(column.dtype), "values": values})
        return described


def count_values(column: pl.Series, *, most: int | None = None) -> list[Row]:
    """The values of a column with the number of items that have them, most frequent first; nulls are left out."""
    named = column.drop_nulls().rename("value")
    counts = named.value_counts(name="count").sort(["count", "value"], descending=[True, False])
    return counts.head(most if most is not None else len(counts)).to_dicts()


def _type_name(dtype: pl.DataType) -> str:
    if dtype == pl.Boolean:
        return "boolean"
    if dtype.is_numeric():
        return "number"
    if dtype == pl.List:
        return "list"
    return "date" if dtype.is_temporal() else "text"
