"""Columns of a table as features that a network can read: rows of one embedding table, and plain numbers.

    features of a row  =  sum over its entries of weight * embedding[entry]  +  vector @ projection

What entries and vectors the columns have: `feature_column`.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import polars as pl
from pydantic import TypeAdapter, ValidationError

from beamtree.data.feature_column import ENTRY, ROW, WEIGHT, FeatureColumn, has_values, kind_of
from beamtree.errors import DataError, SettingsError
from beamtree.types import Float32Array, Int32Array

DeclaredKind = Literal["category", "categories", "number", "vector", "ignore"]


@dataclass(frozen=True, eq=False)
class Features:
    """The features of some rows of a table.

    entries: int32 (rows, most entries), rows of the embedding table, 0 beyond those that a row has; weights: float32,
    the same shape, 0 there; vectors: float32 (rows, size), of size 0 where no column holds vectors.
    """

    entries: Int32Array
    weights: Float32Array
    vectors: Float32Array

    def __len__(self) -> int:
        return len(self.entries)

    def take(self, rows: npt.NDArray[np.integer] | slice) -> "Features":
        """The features of some of the rows, in the given order."""
        return Features(self.entries[rows], self.weights[rows], self.vectors[rows])

    def digest(self) -> str:
        """Equal features, equal digest."""
        hashed = blake2b(digest_size=16)
        for array in (self.entries, self.weights, self.vectors):
            hashed.update(f"{array.shape};".encode() + np.ascontiguousarray(array).tobytes())
        return hashed.hexdigest()


@dataclass(frozen=True)
class FeatureSchema:
    """All columns of a table that are features, in the order of their rows in the embedding table."""

    columns: tuple[FeatureColumn, ...] = ()

    @classmethod
    def infer(cls, table: pl.DataFrame, declared: Mapping[str, DeclaredKind] | None = None) -> Self:
        """What the columns of a table are, unless it is declared; ids, titles and texts that name things are left out.

        SettingsError where a column is declared that the table lacks, DataError where it cannot be what it is declared.
        """
        wanted = dict(declared or {})
        unknown = [name for name in wanted if name not in table.columns]
        if unknown:
            raise SettingsError(
                f"There is no column {unknown[0]!r} to take features from; the table has {', '.join(table.columns)}."
            )
        kinds = [(column, wanted.get(column.name) or kind_of(column)) for column in table.iter_columns()]
        return cls(
            tuple(
                FeatureColumn.of(column, kind)
                for column, kind in kinds
                if kind is not None and kind != "ignore" and has_values(column)
            )
        )

    def __bool__(self) -> bool:
        return bool(self.columns)

    @property
    def num_rows(self) -> int:
        """Rows of the embedding table; the first stands for nothing."""
        return 1 + sum(column.num_rows for column in self.columns)

    @property
    def vector_size(self) -> int:
        """Numbers in the vectors of all columns."""
        return sum(column.size for column in self.columns)

    def encode(self, table: pl.DataFrame) -> Features:
        """The features of a table's rows; a column that it lacks is missing everywhere.

        DataError where a column cannot be read as what it was when the schema was made.
        """
        vectors, found, first = [np.zeros((table.height, 0), dtype=np.float32)], [], 1
        for column in self.columns:
            values = table[column.name] if column.name in table.columns else None
            if column.kind == "vector":
                given = None if values is None else column.vectors(values)
                vectors.append(np.zeros((table.height, column.size), dtype=np.float32) if given is None else given)
            elif values is not None:
                found.append(column.entries(values).with_columns(pl.col(ENTRY).cast(pl.Int64) + first))
            first += column.num_rows
        return Features(*_padded(found, height=table.height), np.concatenate(vectors, axis=1))

    def lines(self, *, of: str = "the items") -> list[str]:
        """What is read from the columns, as a sentence; of: whose features they are."""
        described = ", ".join(column.described() for column in self.columns)
        return [f"features of {of}: {described}"] if described else []

    def as_json(self) -> list[dict[str, Any]]:
        """For a file; `from_json` reads it."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, columns: object) -> Self:
        """What `as_json` gave; DataError where it is something else, or could encode no value."""
        try:
            read = TypeAdapter(tuple[FeatureColumn, ...]).validate_python(columns)
        except ValidationError as error:
            fault = error.errors()[0]
            place = ".".join(map(str, fault["loc"]))
            raise DataError(f"The features of the model cannot be read: {place}: {fault['msg']}.") from error
        names = [column.name for column in read]
        for column in read:
            if not column.can_encode or names.count(column.name) > 1:
                problem = "contradicts itself" if names.count(column.name) == 1 else "is there twice"
                raise DataError(f"The features of the model cannot be read: the column {column.name!r} {problem}.")
        return cls(read)


def _padded(found: list[pl.DataFrame], *, height: int) -> tuple[Int32Array, Float32Array]:
    """Entries and weights (rows, most entries of a row) from frames of row, entry, weight."""
    if not found:
        return np.zeros((height, 0), dtype=np.int32), np.zeros((height, 0), dtype=np.float32)
    columns = [ROW, ENTRY, WEIGHT]
    joined = pl.concat([frame.select(columns) for frame in found]).sort(ROW, maintain_order=True)
    rows = joined[ROW].to_numpy()
    counts = np.bincount(rows, minlength=height)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    entries = np.zeros((height, int(counts.max(initial=0))), dtype=np.int32)
    weights = np.zeros(entries.shape, dtype=np.float32)
    entries[rows, places] = joined[ENTRY].to_numpy()
    weights[rows, places] = joined[WEIGHT].to_numpy()
    return entries, weights
