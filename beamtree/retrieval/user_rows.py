"""Features of users from a user table: values by column, for the columns that a model reads."""

from typing import Any

import polars as pl

from beamtree.data.columns import USER_ID
from beamtree.data.request_features import RequestFeatures
from beamtree.data.vocabulary import Id
from beamtree.errors import InputError


class UserRows:
    """Rows of a user table by raw id; users without a row have no features.

    InputError where the model was fitted without a user table.
    """

    def __init__(self, table: pl.DataFrame | None, read: RequestFeatures) -> None:
        if table is not None and not read.user:
            raise InputError(
                "The model was fitted without a user table, so it reads none. Leave it out, or fit with it."
            )
        self._row = {} if table is None else {str(user): row for row, user in enumerate(table[USER_ID])}
        names = [column.name for column in read.user.columns]
        self._columns = (
            pl.DataFrame() if table is None else table.select(name for name in names if name in table.columns)
        )

    def of(self, user: Id) -> dict[str, Any]:
        """Values by column; '12' and 12 name the same user."""
        row = self._row.get(str(user))
        return {} if row is None else self._columns.row(row, named=True)
