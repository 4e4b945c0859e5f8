"""A tree and its scorer as an index: answers by beam search, whose knob is the width of the beam."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from beamtree.data.requests import Requests
from beamtree.errors import InputError
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.result import SearchResult

WIDTHS = (20, 50, 100, 150, 300, 600, 1200)
"""Beams to try."""


@dataclass(eq=False)
class BeamIndex:
    """Answers by beam search, as `Index` of the baselines' protocol.

    effort: nodes kept per level; efforts: widths worth trying, narrower than the leaf level. index_bytes: the vectors
    of the nodes, other evidence that belongs to items, and the item on each leaf with its inverse. findings: further
    figures of the fit, as JSON, which a comparison stores with its result.
    """

    engine: Engine
    effort: int
    index_bytes: int
    effort_name: str = "beam"
    findings: Mapping[str, Any] = field(default_factory=dict)
    efforts: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        leaves = self.engine.tree.num_leaves
        self.efforts = tuple(width for width in WIDTHS if width < leaves) or (leaves,)

    def search(self, requests: Requests, *, k: int) -> SearchResult:
        """As `Answers.search`."""
        return self.engine.search(requests, k=k, beam_width=self.effort)

    def with_effort(self, effort: int) -> "BeamIndex":
        """The same index with another beam; InputError for a width below 1."""
        if effort < 1:
            raise InputError(f"Expected a beam width of at least 1, got {effort}.")
        return replace(self, effort=effort)
