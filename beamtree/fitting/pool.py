"""Candidates of validation users and what every kind of evidence says of them: weights are tried on these in no time.

A score is a weighted sum, so that what its summands say of an item need only be asked once. Whatever one of them would
recommend by itself is a candidate; another choice of weights is then a sum over a small table.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from beamtree.data.requests import Requests
from beamtree.evaluation.metrics import Labels, Metrics, measure
from beamtree.retrieval.engine import Engine
from beamtree.scorer import Scorer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import NOTHING, Float32Array, Int32Array

CANDIDATES_EACH = 100
"""So many items of each scorer by itself take part, for each user."""

CUTOFFS = (20,)


@dataclass(frozen=True, eq=False)
class CandidatePool:
    """Items (users, candidates) that each user could be given, -1 behind the last, and evidence for them by name.

    evidence: each (users, candidates); what it says of no item means nothing. labels: (flat, offsets) of these users.
    """

    items: Int32Array
    evidence: Mapping[str, Float32Array]
    labels: Labels
    num_items: int

    def measure(self, weights: Mapping[str, float]) -> Metrics:
        """What users get who are given the best candidates under these weights of the evidence."""
        scores = np.zeros(self.items.shape, dtype=np.float32)
        for name, weight in weights.items():
            if weight != 0.0:
                scores += np.float32(weight) * self.evidence[name]
        scores[self.items == NOTHING] = -np.inf
        k = max(CUTOFFS)
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        ranked = np.take_along_axis(best, np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1), axis=1)
        return measure(
            np.take_along_axis(self.items, ranked, axis=1), self.labels, num_items=self.num_items, cutoffs=CUTOFFS
        )

    def spread(self, name: str) -> float:
        """How much a kind of evidence differs between the candidates of a user: the mean standard deviation."""
        values = np.where(self.items == NOTHING, np.nan, self.evidence[name])
        return float(np.nanmean(np.nanstd(values, axis=1)))


def gather_candidates(
    requests: Requests,
    labels: Labels,
    tree: ItemTree,
    *,
    scorers: Mapping[str, Scorer],
    proposers: Sequence[str],
    beam_width: int,
    on_step: Callable[[], None] = lambda: None,
) -> CandidatePool:
    """Ask all scorers about what some of them propose, each by itself.

    requests: of the users whose labels these are; items that they may not get are no candidates. on_step: called now
    and then; it may raise to stop.
    """
    proposed = []
    for name in proposers:
        on_step()
        found = Engine(scorers[name], tree).search(
            requests, k=CANDIDATES_EACH, beam_width=max(beam_width, CANDIDATES_EACH)
        )
        proposed.append(found.items)
    items = _distinct_rows(np.concatenate(proposed, axis=1))
    evidence = {}
    for name, scorer in scorers.items():
        on_step()
        prepared = scorer.prepare(requests)
        values = np.zeros(items.shape, dtype=np.float32)
        for row, candidates in enumerate(items):
            known = candidates[candidates != NOTHING]
            leaves = tree.leaf_of_item[known].astype(np.int64)
            values[row, : len(known)] = prepared.scores(row, tree.height, leaves)
        evidence[name] = values
    return CandidatePool(items, evidence, labels, tree.num_items)


def _distinct_rows(items: Int32Array) -> Int32Array:
    """The distinct items of each row (rows, columns), rising, -1 behind the last."""
    ordered = np.sort(items, axis=1)
    repeated = np.zeros(ordered.shape, dtype=bool)
    repeated[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
    kept = ~repeated & (ordered != NOTHING)
    distinct = np.full((len(items), max(max(CUTOFFS), int(kept.sum(axis=1).max(initial=0)))), NOTHING, dtype=np.int32)
    row, _ = np.nonzero(kept)
    distinct[row, np.concatenate([np.arange(count) for count in kept.sum(axis=1)])] = ordered[kept]
    return distinct
