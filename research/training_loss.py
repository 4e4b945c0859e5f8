"""What training minimised, measured once more on a few of its own instances: the first term of the bound."""

import numpy as np
import numpy.typing as npt

from beamtree.diagnostics.averages import Average, average_over_users
from beamtree.diagnostics.deep_levels import descend, draw_paths, estimate_level
from beamtree.diagnostics.levels import LevelPlan
from beamtree.diagnostics.node_scores import ScorerOf
from beamtree.diagnostics.sampling import log_softmax, log_total, top_down_log_q
from beamtree.retrieval.beam import ScoreNodes
from beamtree.types import Float64Array, Int32Array


def training_loss(
    scorer_of_history: ScorerOf,
    histories: Int32Array,
    targets: Int32Array,
    *,
    plan: LevelPlan,
    labels: npt.NDArray[np.bool_] | None,
    generator: np.random.Generator,
) -> Average:
    """The loss of training instances, summed over levels, with negatives drawn down the tree.

    histories: (instances, positions); targets: (instances,);
    labels: (instances, height), the levels on which each target counts; None counts all. Levels that are too large to
    be scored whole enter with their full softmax, estimated.
    """
    losses = np.array(
        [
            level_losses(scorer_of_history(history), target=int(target), plan=plan, generator=generator)
            for history, target in zip(histories, targets, strict=True)
        ]
    )
    return average_over_users((losses if labels is None else losses * labels).sum(axis=1))


def level_losses(
    score_nodes: ScoreNodes, *, target: int, plan: LevelPlan, generator: np.random.Generator
) -> Float64Array:
    """The loss of one instance on levels 1 to height: (height,)."""
    tree = plan.tree
    whole = [plan.occupied.scores_of_level(score_nodes, level) for level in range(1, plan.exact_depth + 1)]
    from_level = top_down_log_q(whole, tree=tree, start=plan.start)
    losses = np.empty(tree.height)
    for level, scores in enumerate(whole, start=1):
        positive = int(tree.item_ancestors(target, level))
        if plan.taken_whole[level - 1]:
            losses[level - 1] = -log_softmax(scores)[positive]
            continue
        losses[level - 1] = sampled_softmax_loss(
            scores,
            from_level[level - 1],
            positive=positive,
            count=int(plan.counts[level - 1]),
            generator=generator,
        )
    if plan.exact_depth < tree.height:
        paths = draw_paths(
            from_level[-1], from_level[-1], level=plan.exact_depth, tree=tree, draws=plan.draws, generator=generator
        )
        for level in range(plan.exact_depth + 1, tree.height + 1):
            paths = descend(paths, level, occupied=plan.occupied, score_nodes=score_nodes, generator=generator)
            estimate = estimate_level(paths, level, occupied=plan.occupied)
            positive_score = score_nodes(level, np.atleast_1d(tree.item_ancestors(target, level)))
            losses[level - 1] = estimate.log_total - float(positive_score[0])
    return losses


def sampled_softmax_loss(
    scores: Float64Array,
    log_q: Float64Array,
    *,
    positive: int,
    count: int,
    generator: np.random.Generator,
) -> float:
    """The loss of one level with `count` negatives drawn from Q without the positive (Eq. 20, 21)."""
    log_negatives = log_q.copy()
    log_negatives[positive] = -np.inf
    log_negatives -= log_total(log_negatives)
    cumulative = np.cumsum(np.exp(log_negatives))
    drawn = np.searchsorted(cumulative, generator.random(count) * cumulative[-1], side="right")
    corrected = scores[drawn] - np.log(count) - log_negatives[drawn]
    return log_total(np.append(corrected, scores[positive])) - float(scores[positive])
