"""Settings of what is read: the log and its tables, and which of it is held out."""

import math
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field

from beamtree.config.section import Section, decided, flat_names, given_values
from beamtree.config.specs import Share

ValueT = TypeVar("ValueT")
FeatureKind = Literal["category", "categories", "number", "vector", "ignore"]
ITEMS, USERS, CONTEXT = "items.", "users.", "context."
"""In front of the names of columns of the item table, of the user table, and of the log's context."""
ROW_ORDER = "#row"
"""In place of the name of a timestamp column: the log has none, and its rows are in the order of time."""
MIN_RATING, SINCE, UNTIL = "min_rating", "since", "until"


class LogSettings(Section):
    """How a log is read; kept with the model, so that the same log is read the same way again."""

    columns: Annotated[dict[str, str], BeforeValidator(flat_names)] = Field(
        {}, description="ours -> theirs; items.X: item table; timestamp -> #row: row order"
    )
    features: Annotated[dict[str, FeatureKind], BeforeValidator(flat_names)] = Field(
        {}, description="items.X, users.X, context.X -> category, number, vector, ..."
    )
    keep: Annotated[dict[str, list[str] | float | str], BeforeValidator(given_values)] = Field(
        {}, description="filters: min_rating, since, until, or column -> list of values"
    )
    event_weights: Annotated[
        dict[str, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]], BeforeValidator(given_values)
    ] = Field({}, description="event type -> weight as a target, 0 drops it; default: 1")
    target_events: tuple[str, ...] = Field((), description="event types to recommend and evaluate; default: all")
    half_life_days: Annotated[float, Field(gt=0.0, allow_inf_nan=False)] | None = Field(
        None, description="days in which an interaction loses half of its weight"
    )
    bad_rows: Literal["error", "skip"] = Field("error", description="error: stop at a bad row; skip: list it and go on")

    @property
    def interaction_columns(self) -> dict[str, str]:
        """Our name -> the log's, and the user table's."""
        return {name: file for name, file in self.columns.items() if not name.startswith(ITEMS) and file != ROW_ORDER}

    @property
    def item_columns(self) -> dict[str, str]:
        """Our name -> the item table's."""
        return _without(ITEMS, self.columns)

    @property
    def row_order(self) -> bool:
        """Whether the log has no timestamps, and its rows are in the order of time."""
        return self.columns.get("timestamp") == ROW_ORDER

    @property
    def item_features(self) -> dict[str, FeatureKind]:
        """Column of the item table -> its kind of feature, unless inferred."""
        return _without(ITEMS, self.features)

    @property
    def user_features(self) -> dict[str, FeatureKind]:
        """Column of the user table -> its kind of feature, unless inferred."""
        return _without(USERS, self.features)

    @property
    def context_features(self) -> dict[str, FeatureKind]:
        """Context column of the log -> its kind of feature."""
        return _without(CONTEXT, self.features)

    @property
    def min_rating(self) -> float | None:
        """Rows rated lower are left out."""
        given = self.keep.get(MIN_RATING)
        return given if isinstance(given, float) else None

    @property
    def since(self) -> str | float | None:
        """Earlier rows are left out."""
        return self._moment(SINCE)

    @property
    def until(self) -> str | float | None:
        """Rows from this moment on are left out."""
        return self._moment(UNTIL)

    @property
    def event_type(self) -> dict[str, list[str]]:
        """Column -> values: rows that have none of them are left out."""
        return {name: values for name, values in self.keep.items() if isinstance(values, list)}

    def contradictions(self) -> list[str]:
        """Names that mean nothing; times asked of a log that is read without them; targets that count nothing."""
        found = [*self._faults_of_features(), *self._faults_of_filters()]
        given = {
            "keep.since": self.since,
            "keep.until": self.until,
            "half_life_days": self.half_life_days,
        }
        found += [
            f"log.{name} is about timestamps, log.columns.timestamp = '{ROW_ORDER}' reads none: leave one of them out"
            for name, value in given.items()
            if self.row_order and value is not None
        ]
        if self.event_weights and not any(self.event_weights.values()):
            found.append(
                "log.event_weights are all 0: nothing would be left of the log; give some type a weight above 0"
            )
        weightless = [name for name in self.target_events if self.event_weights and not self.event_weights.get(name)]
        if weightless:
            found.append(
                f"log.target_events has {weightless[0]!r}, which has no weight above 0 in log.event_weights: add it"
            )
        return found

    def _moment(self, name: str) -> str | float | None:
        given = self.keep.get(name)
        return None if isinstance(given, list) else given

    def _faults_of_features(self) -> list[str]:
        found = [
            f"log.features: expected items.COLUMN, users.COLUMN or context.COLUMN, got {name!r}"
            for name in self.features
            if not name.startswith((ITEMS, USERS, CONTEXT))
        ]
        ignored = [name for name, kind in self.context_features.items() if kind == "ignore"]
        return found + [
            f"log.features.context.{name}: a column of the context is read because it is named; leave it "
            "out to ignore it"
            for name in ignored
        ]

    def _faults_of_filters(self) -> list[str]:
        found = [
            f"log.keep.{name}: expected a list of values of that column, got {value!r}"
            for name, value in self.keep.items()
            if name not in (MIN_RATING, SINCE, UNTIL) and not isinstance(value, list)
        ]
        found += [
            f"log.keep.{name}: expected one moment, a number or a date, got {self.keep[name]!r}"
            for name in (SINCE, UNTIL)
            if isinstance(self.keep.get(name), list)
        ]
        rating = self.keep.get(MIN_RATING)
        if rating is not None and not (isinstance(rating, float) and math.isfinite(rating)):
            found.append(f"log.keep.min_rating: expected a number, got {rating!r}")
        return found


class DataSettings(Section):
    """What of the log is used, and for what."""

    min_interactions: int = Field(2, ge=2, description="users with fewer interactions are dropped")
    min_held_out: int | None = Field(
        None, ge=1, description="users with fewer are never held out; default: 15, or less"
    )
    holdout: Literal["users", "last", "time", "none"] = Field(
        "users", description="users; last: each user's last item; time: the newest rows; none"
    )
    held_out_shares: tuple[Share, Share] = Field(
        (0.1, 0.1), description="validation and test share of the users, by time of the rows"
    )
    protocol: Literal["clean", "paper"] = Field(
        "clean", description="details of split and metrics; paper: as published"
    )
    split_seed: int | None = Field(
        None, ge=0, lt=2**32, description="chooses the held-out users; default: training.seed"
    )
    catalogue: Literal["log", "items"] = Field("log", description="items of the log, or all of the item table")

    @property
    def validation_share(self) -> float:
        """Validation share of the users (by time: of the interactions)."""
        return self.held_out_shares[0]

    @property
    def test_share(self) -> float:
        """Test share of the users (by time: of the interactions)."""
        return self.held_out_shares[1]

    @property
    def decided_min_held_out(self) -> int:
        """As set, or as decided by the log; SettingsError before that."""
        return decided(self.min_held_out, name="data.min_held_out", kind="a number of interactions")

    def contradictions(self) -> list[str]:
        """Holding out more than everything, or a protocol that knows only one kind of holdout."""
        found = []
        if sum(self.held_out_shares) >= 1.0:
            found.append("data.held_out_shares must add up to less than 1: nothing would be left to train on")
        if self.protocol == "paper" and self.holdout not in ("users", "none"):
            found.append(
                f"data.protocol = 'paper' holds out users, data.holdout = '{self.holdout}' does not: change one of them"
            )
        return found


def _without(prefix: str, named: dict[str, ValueT]) -> dict[str, ValueT]:
    return {name.removeprefix(prefix): value for name, value in named.items() if name.startswith(prefix)}
