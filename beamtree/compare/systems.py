"""Every system that can be compared, by name and in the order of tables, with its requirements."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Literal

from beamtree.baselines.indexes.entries import ENTRIES as INDEXES
from beamtree.baselines.neural.entries import ENTRIES as NEURAL
from beamtree.baselines.next_item import GRU4REC, SASREC
from beamtree.baselines.protocol import Baseline
from beamtree.baselines.registry import BASELINES, Entry
from beamtree.baselines.trees.entries import ENTRIES as TREES
from beamtree.compare.ours import OURS
from beamtree.config import ModelSettings, NetworkSpec
from beamtree.config.loading import merge
from beamtree.errors import InputError

Family = Literal["ours", "counting and linear", "brute force", "index over vectors", "tree"]
QUICK: tuple[Family, ...] = ("ours", "counting and linear")


@dataclass(frozen=True)
class System:
    """One system: its family, and how it is fitted."""

    name: str
    family: Family
    entry: Entry

    @property
    def missing(self) -> list[str]:
        """Libraries that it needs and that are not installed."""
        return [library for library in self.entry.libraries if find_spec(library) is None]

    def changed(self, changes: Mapping[str, Any]) -> "System":
        """The same with other values of its fields, of its recipe's, or of the sizes in that; InputError for others."""
        return self if not changes else replace(self, entry=replace(self.entry, make=partial(self._make, changes)))

    def _make(self, changes: Mapping[str, Any]) -> Baseline:
        made: Any = self.entry.make()
        for name, value in changes.items():
            made = _with(made, name, tuple(value) if isinstance(value, list) else value, system=self.name)
        baseline: Baseline = made
        return baseline

    def facts(self) -> dict[str, Any]:
        """What it is, for a list."""
        return {
            "name": self.name,
            "family": self.family,
            "description": self.entry.description,
            "extra": self.entry.extra if self.entry.libraries else None,
            "is_installed": not self.missing,
        }


def _with(made: Any, name: str, value: Any, *, system: str) -> Any:
    own = [field.name for field in fields(made) if field.init] if is_dataclass(made) else []
    recipe = getattr(made, "recipe", None)
    of_recipe = [field.name for field in fields(recipe)] if is_dataclass(recipe) else []
    sizes = getattr(recipe, "sizes", None)
    of_sizes = [*ModelSettings.model_fields, *NetworkSpec.model_fields] if isinstance(sizes, ModelSettings) else []
    if name in own:
        return replace(made, **{name: value})
    if name in of_recipe:
        return replace(made, recipe=replace(recipe, **{name: value}))  # type: ignore[type-var]
    if name in of_sizes and isinstance(sizes, ModelSettings):
        changed = {name: value} if name in ModelSettings.model_fields else {"network": {name: value}}
        sizes = ModelSettings.model_validate(merge(sizes.model_dump(), changed))
        return replace(made, recipe=replace(recipe, sizes=sizes))  # type: ignore[type-var]
    known = ", ".join([*own, *of_recipe, *of_sizes]) or "nothing"
    raise InputError(f"{system} has no {name!r} to change. It has {known}.")


def _family(family: Family, entries: Mapping[str, Entry]) -> dict[str, System]:
    return {name: System(name, family, entry) for name, entry in entries.items()}


def _by_name(entries: Sequence[Entry]) -> dict[str, Entry]:
    return {entry.make().name: entry for entry in entries}


_ENCODERS = {name: entry for name, entry in BASELINES.items() if name.startswith((SASREC.name, GRU4REC.name))}
_COUNTING = {name: entry for name, entry in BASELINES.items() if name not in _ENCODERS}

SYSTEMS = MappingProxyType(
    _family("ours", OURS)
    | _family("counting and linear", _COUNTING)
    | _family("brute force", _ENCODERS | _by_name(NEURAL))
    | _family("index over vectors", _by_name(INDEXES))
    | _family("tree", _by_name(TREES))
)
"""All systems by name."""


def choose_systems(asked: str | Sequence[str]) -> dict[str, System]:
    """Those of a list of names, or of "all" or "quick", in the order of tables; InputError for an unknown name."""
    if asked == "all":
        return dict(SYSTEMS)
    if asked == "quick":
        return {name: system for name, system in SYSTEMS.items() if system.family in QUICK}
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    unknown = [name for name in names if name not in SYSTEMS]
    if unknown:
        raise InputError(
            f"Expected systems by name, got {', '.join(map(repr, unknown))}. Choose from {', '.join(SYSTEMS)}, or "
            "quick or all; beamtree compare --list says what each is."
        )
    return {name: system for name, system in SYSTEMS.items() if name in names}
