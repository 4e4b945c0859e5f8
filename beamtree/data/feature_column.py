"""One column of a table as a feature: what kind it is, what of its values is remembered, and how they are encoded.

A column is a category (one value), categories (several values), a number or a vector. Each value of a category has a
row if it occurs at least twice; rarer and unknown ones share a few rows by their hash. A number is interpolated
between the rows of its two neighbouring quantiles. A vector stays as it is. What is missing has no row.
"""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal, Self

import numpy as np
import polars as pl

from beamtree.data.columns import CATEGORY, ITEM_ID, TITLE, USER_ID
from beamtree.errors import DataError
from beamtree.types import Float32Array, Float64Array

FeatureKind = Literal["category", "categories", "number", "vector"]

HASHED_ROWS: Final = 32
"""Rows that all rare and unknown values of a column share."""
MOST_VALUES: Final = 20_000
"""Values of a column with a row of their own, the most frequent ones."""
MOST_NUMBERS: Final = 65_536
"""Of a vector."""
LARGEST_SCALED: Final = 1e15
"""Of the numbers in a vector: products of larger ones leave the range of float32."""
FEWEST_SHARING: Final = 2
"""A value of fewer rows than this says nothing that others could learn from."""
QUANTILES: Final = 16
NAMES_THINGS: Final = 0.5
"""A column of texts with more distinct values than this share of its rows names things, as titles do."""
SEPARATORS: Final = ("|", ";", ",", " ")
SHARE_WITH_SEVERAL: Final = 0.2
"""From this share of its rows on, a column with a separator in it holds several values."""

ROW, ENTRY, WEIGHT, VALUE = "row", "entry", "weight", "value"


@dataclass(frozen=True)
class FeatureColumn:
    """One column: its kind, and the statistics of its values.

    values: those with a row of their own; separator: between several values in a text; quantiles: of a number, rising;
    size: of a vector; scale: what vectors are divided by.
    """

    name: str
    kind: FeatureKind
    values: tuple[str, ...] = ()
    separator: str | None = None
    quantiles: tuple[float, ...] = ()
    size: int = 0
    scale: float = 1.0

    @classmethod
    def of(cls, column: pl.Series, kind: FeatureKind) -> Self:
        """What a column has to be remembered by; DataError where it cannot be read as this kind."""
        if kind == "vector":
            vectors = _vectors(column)
            if vectors.shape[1] > MOST_NUMBERS:
                raise DataError(
                    f"Expected vectors of at most {MOST_NUMBERS:,} numbers in the column {column.name!r}, got "
                    f"{vectors.shape[1]:,}. Project them to fewer, or leave the column out."
                )
            lengths = np.linalg.norm(vectors, axis=1)
            typical = float(lengths[lengths > 0.0].mean()) if (lengths > 0.0).any() else 1.0
            return cls(column.name, kind, size=vectors.shape[1], scale=typical)
        if kind == "number":
            numbers = _numbers(column)
            quantiles = np.unique(np.nanquantile(numbers, np.linspace(0.0, 1.0, QUANTILES)))
            return cls(column.name, kind, quantiles=tuple(quantiles.tolist()))
        separator = _separator(column) if kind == "categories" else None
        counts = _exploded(column, separator).group_by(VALUE).len().filter(pl.col("len") >= FEWEST_SHARING)
        values = counts.sort("len", VALUE, descending=[True, False])[VALUE].head(MOST_VALUES)
        return cls(column.name, kind, values=tuple(values), separator=separator)

    @property
    def num_rows(self) -> int:
        """Rows of the embedding table."""
        return len(self.quantiles) + (len(self.values) + HASHED_ROWS if self.kind.startswith("categor") else 0)

    @property
    def can_encode(self) -> bool:
        """Whether what is remembered is of its kind, as `of` remembers it: files of unknown origin hold anything."""
        texts = (self.name, *self.values, self.separator or "")
        numbers = np.array(self.quantiles)
        return (
            all(text.encode(errors="ignore").decode() == text for text in texts)
            and len(set(self.values)) == len(self.values)
            and (not self.values or self.kind in ("category", "categories"))
            and (self.separator is None or (self.kind == "categories" and self.separator != ""))
            and bool(self.quantiles) == (self.kind == "number")
            and bool(np.isfinite(numbers).all() and (np.diff(numbers) > 0.0).all())
            and (0 <= self.size <= MOST_NUMBERS if self.kind == "vector" else self.size == 0)
            and self.scale > 0.0
        )

    def entries(self, column: pl.Series) -> pl.DataFrame:
        """The rows of the embedding table, from 0 on, that each row of the column has: columns row, entry, weight."""
        if self.kind == "number":
            return _between(_numbers(column), np.array(self.quantiles))
        given = _exploded(column, self.separator)
        known = pl.DataFrame({VALUE: pl.Series(self.values, dtype=pl.String), ENTRY: np.arange(len(self.values))})
        rare = given.join(known, on=VALUE, how="anti")[VALUE].unique()
        hashed = pl.DataFrame(
            {VALUE: rare, ENTRY: [len(self.values) + _hash(text) for text in rare]}, schema=known.schema
        )
        joined = given.join(pl.concat([known, hashed]), on=VALUE, how="left", maintain_order="left")
        return joined.select(ROW, ENTRY, (pl.len().over(ROW).cast(pl.Float64) ** -0.5).alias(WEIGHT))

    def vectors(self, column: pl.Series) -> Float32Array:
        """Vectors (rows, size), scaled, zeros where one is missing; DataError where they have another size."""
        if column.null_count() == len(column):
            return np.zeros((len(column), self.size), dtype=np.float32)
        vectors = _vectors(column)
        if vectors.shape[1] != self.size:
            raise DataError(
                f"Expected vectors of {self.size} numbers in the column {self.name!r}, as when the model was fitted, "
                f"got {vectors.shape[1]}. Make them with the same model of texts or images."
            )
        scaled = vectors / np.float32(self.scale)
        if not (np.abs(scaled) <= LARGEST_SCALED).all():
            raise DataError(
                f"Expected numbers of at most {LARGEST_SCALED:g} times the usual size in the vectors of the column "
                f"{self.name!r}, got {np.abs(vectors).max():g}. Make them with the same model of texts or images."
            )
        return scaled

    def described(self) -> str:
        """A short description of the column."""
        several = f"{len(self.values):,} values"
        of_kind = {"category": several, "categories": several, "number": "number", "vector": f"vector of {self.size}"}
        return f"{self.name} ({of_kind[self.kind]})"


def kind_of(column: pl.Series) -> FeatureKind | None:
    """The kind that the values of a column suggest; None where they are no features."""
    dtype, present = column.dtype, column.drop_nulls()
    if column.name in (ITEM_ID, USER_ID, TITLE) or present.is_empty():
        return None
    if column.name == CATEGORY:
        return "category"
    if isinstance(dtype, pl.List | pl.Array):
        return "vector" if dtype.inner.is_float() else "categories" if _is_text(dtype.inner) else None
    if dtype == pl.Boolean:
        return "category"
    if dtype.is_numeric() or dtype.is_temporal():
        return "number"
    if not _is_text(dtype):
        return None
    separator = _separator(column)
    if separator is not None:
        distinct = _exploded(column, separator)[VALUE].n_unique()
        return "categories" if distinct <= NAMES_THINGS * len(present) else None
    return "category" if present.n_unique() <= NAMES_THINGS * len(present) else None


def has_values(column: pl.Series) -> bool:
    """Whether there is anything to learn from: any value, of numbers a finite one."""
    present = column.drop_nulls()
    return bool(present.is_finite().any()) if present.dtype.is_float() else not present.is_empty()


def _is_text(dtype: object) -> bool:
    return dtype in (pl.String, pl.Categorical, pl.Enum)


def _separator(column: pl.Series) -> str | None:
    """What separates several values in the texts of a column; None where each holds one, or the type says it all.

    Blanks separate only where most of the words occur in many rows: names of one thing have blanks too.
    """
    if not _is_text(column.dtype):
        return None
    texts = column.drop_nulls().cast(pl.String)
    for mark in SEPARATORS[:-1]:
        if texts.str.contains(mark, literal=True).mean() >= SHARE_WITH_SEVERAL:  # type: ignore[operator]
            return mark
    words = texts.str.split(" ").explode().n_unique()
    return SEPARATORS[-1] if words * 4 <= texts.n_unique() else None


def _exploded(column: pl.Series, separator: str | None) -> pl.DataFrame:
    """The distinct values of each row of a column as texts: columns row, value; blank ones are none."""
    if isinstance(column.dtype, pl.List | pl.Array):
        values = column.cast(pl.List(pl.String))
    elif separator is None:
        values = column.cast(pl.String)
    else:
        values = column.cast(pl.String).str.split(separator)
    frame = pl.DataFrame({ROW: np.arange(len(column)), VALUE: values})
    if values.dtype != pl.String:
        frame = frame.explode(VALUE)
    return (
        frame.with_columns(pl.col(VALUE).str.strip_chars())
        .filter(pl.col(VALUE).is_not_null() & (pl.col(VALUE) != ""))
        .unique(maintain_order=True)
    )


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(errors="surrogatepass"), digest_size=4).digest(), "little") % HASHED_ROWS


def _numbers(column: pl.Series) -> Float64Array:
    """A column as numbers, nan where one is missing; moments count as what they are stored as."""
    physical = column.to_physical() if column.dtype.is_temporal() else column
    numbers = physical.cast(pl.Float64, strict=False)
    if numbers.null_count() > column.null_count():
        wrong = column.filter(numbers.is_null() & column.is_not_null()).item(0)
        raise DataError(
            f"Expected numbers in the column {column.name!r}, got {wrong!r}. Correct the column, or declare it as a "
            "category."
        )
    found: Float64Array = numbers.fill_null(float("nan")).to_numpy()
    return np.where(np.isfinite(found), found, np.nan)


def _between(numbers: Float64Array, quantiles: Float64Array) -> pl.DataFrame:
    """Numbers (rows,) between two quantiles each, with the share of either: columns row, entry, weight."""
    rows = np.flatnonzero(np.isfinite(numbers))
    inside = np.clip(numbers[rows], quantiles[0], quantiles[-1])
    upper = np.clip(np.searchsorted(quantiles, inside), min(1, len(quantiles) - 1), len(quantiles) - 1)
    lower = np.maximum(upper - 1, 0)
    apart = np.where(upper > lower, quantiles[upper] - quantiles[lower], 1.0)
    share = np.where(upper > lower, (inside - quantiles[lower]) / apart, 1.0)
    both = pl.DataFrame(
        {
            ROW: np.repeat(rows, 2),
            ENTRY: np.stack([lower, upper], axis=1).ravel(),
            WEIGHT: np.stack([1.0 - share, share], axis=1).ravel(),
        }
    )
    return both.filter(pl.col(WEIGHT) > 0.0)


def _vectors(column: pl.Series) -> Float32Array:
    """A column of lists of numbers as (rows, size), zeros where one is missing."""
    if not isinstance(column.dtype, pl.List | pl.Array) or not column.dtype.inner.is_numeric():
        raise DataError(
            f"Expected lists of numbers in the column {column.name!r}, got {column.dtype}. Store each vector as a list "
            "of floats, as Parquet files can."
        )
    lists = column.cast(pl.List(pl.Float32))
    sizes = lists.drop_nulls().list.len().unique()
    if len(sizes) != 1 or lists.list.eval(pl.element().is_null()).list.any().any():
        raise DataError(
            f"Expected vectors of one size and without gaps in the column {column.name!r}, got sizes "
            f"{', '.join(map(str, sizes.sort()))}."
        )
    vectors = np.zeros((len(column), sizes.item(0)), dtype=np.float32)
    vectors[lists.is_not_null().to_numpy()] = np.stack(lists.drop_nulls().to_list() or [np.zeros(sizes.item(0))])
    if not np.isfinite(vectors).all():
        raise DataError(f"Expected finite numbers in the vectors of the column {column.name!r}.")
    return vectors
