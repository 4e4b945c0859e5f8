"""An experiment of the paper: systems, their settings, and the evaluation of their results."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from beamtree.compare.curve import Curve
from beamtree.compare.summary import Row, Summary
from beamtree.compare.task import SYSTEMS_MODULE
from beamtree.diagnostics.section import Table

PRODUCT = "beamtree reproduce"


@dataclass(frozen=True)
class Heading:
    """The description of an experiment. place: the paper's table or figure; finding: that of the paper, a sentence.

    program: the command that runs it.
    """

    name: str
    title: str
    place: str
    finding: str
    program: str = PRODUCT

    def facts(self) -> dict[str, str]:
        """For a list."""
        return {"name": self.name, "what": self.title, "paper": self.place, "command": f"{self.program} {self.name}"}


@dataclass(frozen=True)
class Variant:
    """A system with its settings. published_as: its name in the paper's tables, None if it is not in them.

    changes: as in `Task`; setting: names them in labels, such as "branching 4"; at: their place on an axis.
    """

    system: str
    published_as: str | None = None
    changes: Mapping[str, Any] = field(default_factory=dict)
    setting: str | None = None
    at: float | None = None

    @property
    def label(self) -> str:
        """Its name in tables and files."""
        return self.system if self.setting is None else f"{self.system}, {self.setting}"


@dataclass(frozen=True, eq=False)
class Evidence:
    """Results of an experiment so far. with_paper: show the published figures beside them."""

    variants: Sequence[Variant]
    summary: Summary
    curves: Sequence[Curve]
    with_paper: bool

    def rows(self) -> list[tuple[Variant, Row]]:
        """Variants that were measured, in the order of the experiment."""
        by_name = {row.name: row for row in self.summary.rows}
        return [(variant, by_name[variant.label]) for variant in self.variants if variant.label in by_name]


@dataclass(frozen=True)
class Part:
    """A piece of a report. text: what it shows; plot: an <svg>, empty for none."""

    key: str
    title: str
    text: str
    tables: Sequence[Table]
    plot: str = ""


@dataclass(frozen=True)
class Experiment:
    """heading: its description. parts: of its report. instances: the default budget of each tree; None = limited by
    time alone. systems_module: that of its systems."""

    heading: Heading
    variants: Sequence[Variant]
    parts: Callable[[Evidence], Sequence[Part]]
    instances: int | None = None
    systems_module: str = SYSTEMS_MODULE

    def of_systems(self, names: Sequence[str]) -> list[Variant]:
        """Its variants of these systems; all without names."""
        return [variant for variant in self.variants if not names or variant.system in names]

    @property
    def systems(self) -> list[str]:
        """The names of its systems."""
        return list(dict.fromkeys(variant.system for variant in self.variants))
