"""Event types, such as view, cart and buy: the weight of each type, and which types are targets."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import polars as pl

from beamtree.data.columns import EVENT_TYPE, WEIGHT
from beamtree.errors import DataError, SettingsError

EVENT_KINDS = "a text or an integer that names a type of event"
MAX_LISTED = 20
"""Event types that a message lists at most."""


@dataclass(frozen=True)
class EventTypes:
    """Row weights by event type.

    weights: target weight of each type, 0 = dropped from the log; empty: 1 for any type. targets:
    the types that are recommended, empty = all; rows of other types stay in the histories and are never targets.
    """

    weights: Mapping[str, float]
    targets: tuple[str, ...]

    @classmethod
    def of(cls, weights: Mapping[str, float] | None, targets: Collection[str] | None) -> Self | None:
        """None where neither is given; SettingsError for a negative weight, or a target type without a weight."""
        if not weights and not targets:
            return None
        if isinstance(targets, str):
            raise SettingsError(f"target_events is a list of event types, got {targets!r}. Write [{targets!r}].")
        named = {str(name): float(weight) for name, weight in (weights or {}).items()}
        for name, weight in named.items():
            if not 0.0 <= weight < float("inf"):
                raise SettingsError(f"The weight of an event type is a number of at least 0, got {name!r}: {weight}.")
        wanted = tuple(str(name) for name in targets or ())
        for name in wanted:
            if named and not named.get(name):
                raise SettingsError(
                    f"target_events has {name!r}, but event_weights gives it no weight above 0: add it there."
                )
        return cls(named, wanted)

    @property
    def left_out(self) -> list[str]:
        """The types whose rows are not read."""
        return [name for name, weight in self.weights.items() if weight == 0.0]

    def is_known(self, name: str) -> bool:
        """Whether it is said what a type counts."""
        return not self.weights or name in self.weights

    def weight_of(self, name: str | None) -> float | None:
        """What an event of a type counts as a target, 1 without a type; None where such events are left out.

        A type of which nothing is said is left out too.
        """
        if name is None:
            return 1.0
        weight = self.weights.get(name, 0.0) if self.weights else 1.0
        if weight == 0.0:
            return None
        return weight if not self.targets or name in self.targets else 0.0

    def check(self, counts: Mapping[str, int], *, origin: str) -> None:
        """DataError for a type without a weight, and where no row of a log is of a target type.

        counts: rows of each type; origin: the log, for messages.
        """
        counts = dict(sorted(counts.items(), key=lambda counted: (-counted[1], counted[0])))
        unknown = [name for name in counts if self.weights and name not in self.weights]
        if unknown:
            raise DataError(
                f"{origin}: event_weights says nothing of {_listed(unknown)}. The log has {_counted(counts)}. Give "
                "every type a weight; 0 leaves its rows out."
            )
        if not any(self._target_weight(name) for name in counts):
            raise DataError(
                f"{origin}: no row is of a type in target_events ({_listed(self.targets)}). The log has "
                f"{_counted(counts)}. Name types as the log does."
            )

    def weigh(self, frame: pl.DataFrame, *, types: Collection[str]) -> pl.DataFrame:
        """The frame with its column event_type, of these types, replaced by weight, Float32."""
        weights = {name: self._target_weight(name) for name in types}
        weighed = frame[EVENT_TYPE].replace_strict(weights, return_dtype=pl.Float32)
        return frame.drop(EVENT_TYPE).with_columns(weighed.alias(WEIGHT))

    def _target_weight(self, name: str) -> float:
        return self.weights.get(name, 1.0) * (not self.targets or name in self.targets)

    def described(self) -> str:
        """The weights as a phrase."""
        counts = ", ".join(f"{name} {weight:g}" for name, weight in self.weights.items() if weight > 0.0)
        weighed = f"events weighed: {counts}" if counts else "events weighed alike"
        return f"{weighed}; targets: {', '.join(self.targets)}" if self.targets else weighed


def parse_events(column: pl.Series) -> pl.Series:
    """Event types as String, without blanks around them; null where one is missing or can be no type."""
    if column.dtype in (pl.Categorical, pl.Enum) or column.dtype.is_integer():
        column = column.cast(pl.String)
    if column.dtype != pl.String:
        return pl.repeat(None, len(column), dtype=pl.String, eager=True).alias(column.name)
    stripped = column.str.strip_chars()
    return stripped.set(stripped == "", None)


def _listed(names: Collection[str]) -> str:
    shown = ", ".join(repr(name) for name in list(names)[:MAX_LISTED])
    return f"{shown}, ..." if len(names) > MAX_LISTED else shown


def _counted(found: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name!r} ({rows:,} rows)" for name, rows in list(found.items())[:MAX_LISTED])
    return f"{shown}, ..." if len(found) > MAX_LISTED else shown
