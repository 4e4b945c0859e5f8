"""Features of a request beside its history: of the user and of the context.

Columns of the user table and context columns of the log are read as features, see `features`. A model keeps what it
has to remember of the columns, never the users' rows; a request gives values by column, and what it leaves out is
missing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from beamtree.config import LogSettings
from beamtree.data.feature_column import FeatureColumn
from beamtree.data.features import Features, FeatureSchema
from beamtree.data.parse import parse_iso
from beamtree.errors import DataError, FeatureError

if TYPE_CHECKING:
    from beamtree.data.dataset import Dataset

Values = Mapping[str, Any]
"""Values by column, as a request gives them."""

SHOWN_CHARACTERS = 80


@dataclass(frozen=True)
class RequestFeatures:
    """The columns that a model reads of users and of contexts; both empty where it reads none."""

    user: FeatureSchema = field(default_factory=FeatureSchema)
    context: FeatureSchema = field(default_factory=FeatureSchema)

    @classmethod
    def infer(cls, dataset: "Dataset", settings: LogSettings) -> Self:
        """From the tables of a data set: kinds of user columns are inferred unless declared, context is declared.

        SettingsError where a column is declared that the user table lacks; DataError where a context column is empty,
        or a column cannot be what it is declared.
        """
        user = context = FeatureSchema()
        if dataset.user_table is not None:
            user = FeatureSchema.infer(dataset.user_table, settings.user_features)
        if dataset.context is not None:
            empty = [
                name
                for name, nulls in dataset.context.null_count().row(0, named=True).items()
                if nulls == dataset.context.height
            ]
            if empty:
                raise DataError(
                    f"log.features reads the column {empty[0]!r} of the context, which has no value in this log. "
                    "Check its name, or leave it out."
                )
            context = FeatureSchema.infer(dataset.context, settings.context_features)
        return cls(user, context)

    def __bool__(self) -> bool:
        return bool(self.user) or bool(self.context)

    def lines(self) -> list[str]:
        """What is read, as sentences."""
        return [*self.user.lines(of="the users"), *self.context.lines(of="the context")]

    def of_users(self, users: Sequence[Values]) -> Features:
        """Features of users given by their values; FeatureError for unknown columns and values of another type."""
        return _encoded(self.user, users, what="user_features")

    def of_contexts(self, contexts: Sequence[Values]) -> Features:
        """Features of contexts given by their values; FeatureError for unknown columns and values of another type."""
        return _encoded(self.context, contexts, what="context")

    def as_json(self) -> dict[str, Any]:
        """For a file; `from_json` reads it."""
        return {"user": self.user.as_json(), "context": self.context.as_json()}

    @classmethod
    def from_json(cls, stated: Mapping[str, Any]) -> Self:
        """What `as_json` gave, nothing where it is empty; DataError where it is something else."""
        return cls(FeatureSchema.from_json(stated.get("user", ())), FeatureSchema.from_json(stated.get("context", ())))


@dataclass(frozen=True, eq=False)
class DatasetFeatures:
    """The features of a data set: of its users, a row for each dense user, and of the contexts of its interactions, a
    row for each, aligned with the flat sequences. None where none are read. read: the columns."""

    users: Features | None = None
    contexts: Features | None = None
    read: RequestFeatures = field(default_factory=RequestFeatures)

    @classmethod
    def of(cls, dataset: "Dataset", read: RequestFeatures) -> Self:
        """What a model reads of the tables of a data set; all missing where it reads some that is not there."""
        users = contexts = None
        if read.user:
            table = dataset.user_table
            users = read.user.encode(dataset.users.ids.to_frame() if table is None else table)
        if read.context:
            context = dataset.context
            rows = pl.DataFrame({"": pl.zeros(len(dataset.sequences.items), eager=True)})
            contexts = read.context.encode(rows if context is None else context)
        return cls(users, contexts, read)

    def digest(self) -> str:
        """Equal features, equal digest; empty where none are read."""
        if not self:
            return ""
        return " ".join("" if rows is None else rows.digest() for rows in (self.users, self.contexts))

    def __bool__(self) -> bool:
        return bool(self.read)


NO_FEATURES = DatasetFeatures()
"""Of a data set of which nothing is read but the histories."""


def typed_values(texts: Mapping[str, str], schema: FeatureSchema) -> dict[str, Any]:
    """Values of a request, given as texts, in the kinds of their columns: numbers, and lists of them, are JSON."""
    kinds = {column.name: column.kind for column in schema.columns}
    return {name: _read(text) if kinds.get(name) in ("number", "vector") else text for name, text in texts.items()}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _encoded(schema: FeatureSchema, rows: Sequence[Values], *, what: str) -> Features:
    known = {column.name: column for column in schema.columns}
    for row in rows:
        unknown = next((name for name in row if name not in known), None)
        if unknown is not None:
            reads = f"reads {', '.join(known)}" if known else "was fitted without any"
            raise FeatureError(
                f"{what}: there is no column {str(unknown)[:SHOWN_CHARACTERS]!r}; the model {reads}. Leave it out, or "
                "fit with it."
            )
    table = {name: _column(column, [row.get(name) for row in rows], what=what) for name, column in known.items()}
    try:
        return schema.encode(pl.DataFrame(table) if table else pl.DataFrame({"": [None] * len(rows)}))
    except DataError as problem:
        raise FeatureError(f"{what}: {problem}") from problem


def _column(column: FeatureColumn, values: list[Any], *, what: str) -> pl.Series:
    """Values as a column of its kind: categories as texts, numbers as numbers, vectors as lists of numbers."""
    return pl.Series(
        column.name,
        [None if value is None else _value(column, value, what=what) for value in values],
        dtype=_DTYPES[column.kind if column.separator is None else "category"],
    )


_DTYPES: Mapping[str, pl.DataType] = {
    "category": pl.String(),
    "categories": pl.List(pl.String),
    "number": pl.Float64(),
    "vector": pl.List(pl.Float32),
}


def _value(column: FeatureColumn, value: Any, *, what: str) -> Any:
    match column.kind:
        case "category" if isinstance(value, str | int | float):
            return _text(value)
        case "categories" if isinstance(value, str):
            return value if column.separator is not None else [value]
        case "categories" if isinstance(value, list | tuple) and all(
            isinstance(one, str | int | float) for one in value
        ):
            texts = [_text(one) for one in value]
            return texts if column.separator is None else column.separator.join(texts)
        case "number" if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        case "number" if isinstance(value, str) and parse_iso(pl.Series([value])).null_count() == 0:
            return float(parse_iso(pl.Series([value])).item())
        case "vector" if isinstance(value, list | tuple) and all(
            isinstance(one, int | float) and not isinstance(one, bool) for one in value
        ):
            return [float(one) for one in value]
    raise FeatureError(
        f"{what}: expected {column.name} as {_KINDS[column.kind]}, as the model was fitted with it, got "
        f"{repr(value)[:SHOWN_CHARACTERS]}."
    )


_KINDS: Mapping[str, str] = {
    "category": "a text, a number or a boolean",
    "categories": "a text or a list of texts",
    "number": "a number or an ISO date",
    "vector": "a list of numbers",
}


def _text(value: str | float) -> str:
    """A value as a column of its type is spelt: true, 3, 2.5."""
    return str(value).lower() if isinstance(value, bool) else str(value)
