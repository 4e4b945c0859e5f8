"""The result of a search, in dense ids."""

from dataclasses import dataclass

from beamtree.types import Float32Array, Int32Array


@dataclass(frozen=True)
class SearchResult:
    """Items (requests, k), best first, -1 where fewer were eligible, and their scores, -inf there."""

    items: Int32Array
    scores: Float32Array
