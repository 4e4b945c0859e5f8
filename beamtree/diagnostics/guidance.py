"""The influence of each part on the beam, by level: share of the spread of scores, and recall without the part."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from beamtree.data.requests import Requests
from beamtree.diagnostics.averages import Average, average_over_histories
from beamtree.retrieval.beam import ScoreNodes, widened
from beamtree.retrieval.engine import scores_of
from beamtree.retrieval.explain import SeenLevel, watch_search
from beamtree.scorer import Scorer
from beamtree.tree.filters import Eligibility
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Float64Array, Int32Array, Int64Array


@dataclass(frozen=True)
class LevelGuidance:
    """One level on which beams drop nodes, averaged over users.

    spread: by part, its share of the spread, the standard deviation of its scores over the nodes in the beam divided by
    the sum of those of all parts; None if all scores are equal. recall: the share of the exact
    top 20 whose ancestors the beam keeps here, on the leaves whose leaf it returns; recall_without: the same, where the
    beam is led by the score without a part.
    """

    level: int
    nodes: int
    spread: dict[str, Average | None]
    recall: Average
    recall_without: dict[str, Average]


def measure_guidance(
    tree: ItemTree,
    scorers: Mapping[str, Scorer],
    requests: Requests,
    *,
    exact: Int32Array,
    beam_width: int,
    k: int,
    advance: Callable[[int], None],
) -> tuple[LevelGuidance, ...]:
    """Follow each request down the tree with all parts, and without each of them.

    scorers: one for each part; exact: (requests, k), what an exact scan of the whole score finds, -1 for nothing.
    Levels that no beam has to choose on are left out.
    """
    eligibility = Eligibility.of(requests, tree)
    excluded = np.broadcast_to(eligibility.num_excluded(np.arange(len(requests))), len(requests))
    widths = widened(max(beam_width, k), excluded)
    prepared = {part: scorer.prepare(requests) for part, scorer in scorers.items()}
    shape = (tree.height + 1, len(requests))
    spread = {part: np.full(shape, np.nan) for part in scorers}
    recall: dict[str | None, Float64Array] = {left_out: np.full(shape, np.nan) for left_out in (None, *scorers)}
    for request in range(len(requests)):
        scores = {part: scores_of(given, request) for part, given in prepared.items()}
        wanted = tree.leaf_of_item[exact[request][exact[request] >= 0]].astype(np.int64)
        for left_out, kept in recall.items():
            seen = watch_search(
                tree,
                _sum_of([score for part, score in scores.items() if part != left_out]),
                eligibility=eligibility,
                request=request,
                beam_width=int(widths[request]),
                k=k,
            )
            for step in seen:
                if len(wanted):
                    kept[step.level, request] = _share_kept(tree, step, wanted)
                if left_out is None:
                    for part, share in spread_shares(scores, step.level, step.nodes).items():
                        spread[part][step.level, request] = share
        advance(1)
    rows = np.arange(len(requests))
    levels = []
    for level in range(1, tree.height + 1):
        whole = average_over_histories(recall[None][level], rows)
        without = {part: average_over_histories(recall[part][level], rows) for part in scorers}
        if whole is not None:
            levels.append(
                LevelGuidance(
                    level=level,
                    nodes=int(tree.level_sizes[level]),
                    spread={part: average_over_histories(spread[part][level], rows) for part in scorers},
                    recall=whole,
                    recall_without={part: value for part, value in without.items() if value is not None},
                )
            )
    return tuple(levels)


def spread_shares(scores: Mapping[str, ScoreNodes], level: int, nodes: Int64Array) -> dict[str, float]:
    """Each part's share of the standard deviation over nodes (n,) of a level; NaN if all scores are equal."""
    spreads = {part: float(np.std(score(level, nodes), dtype=np.float64)) for part, score in scores.items()}
    total = sum(spreads.values())
    return {part: spread / total if total > 0.0 else float("nan") for part, spread in spreads.items()}


def _sum_of(scores: list[ScoreNodes]) -> ScoreNodes:
    def total(level: int, nodes: Int64Array) -> Float32Array:
        return np.asarray(np.sum([score(level, nodes) for score in scores], axis=0), dtype=np.float32)

    return total


def _share_kept(tree: ItemTree, seen: SeenLevel, leaves: Int64Array) -> float:
    return float(np.isin(tree.ancestors(leaves, seen.level), seen.nodes[: seen.kept]).mean())
