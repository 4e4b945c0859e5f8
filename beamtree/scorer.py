"""The seam between a score and everything that uses it: search, scan, validation, diagnostics, explanations.

A scorer is prepared once for a batch of requests and then asked level by level. Who implements it decides how fast it
is: the compiled kernels search by themselves, torch and anything else go through the reference search.
"""

from typing import Protocol

from beamtree.data.requests import Requests
from beamtree.types import Float32Array, Int64Array


class PreparedScores(Protocol):
    """Scores for the requests that a scorer was prepared for."""

    def scores(self, request: int, level: int, nodes: Int64Array) -> Float32Array:
        """Scores (n,) of nodes (n,) of a level, for one of the requests; higher is better."""


class Scorer(Protocol):
    """Anything that scores the nodes of a tree for requests."""

    def prepare(self, requests: Requests) -> PreparedScores:
        """The work that all levels share: encode the histories, collect the evidence for eligible items."""
