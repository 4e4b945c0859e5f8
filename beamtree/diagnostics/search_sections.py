"""Sections on the search: loss by level, beam search, max-heap violations, sampling."""

from collections.abc import Callable, Mapping

from beamtree.diagnostics.headlines import narrowest_enough, percent, result_at, worst_heap_level
from beamtree.diagnostics.plots import plot_beams, plot_heap, plot_loss, plot_sampling
from beamtree.diagnostics.report import Diagnostics, LevelReport
from beamtree.diagnostics.section import Section, cell, estimated, share_cell, table_of

LEVEL: Mapping[str, Callable[[LevelReport], str]] = {
    "level": lambda level: str(level.level),
    "nodes": lambda level: f"{level.nodes:,}",
}
"""The first columns of a table with a row for each level."""


def loss_section(diagnostics: Diagnostics) -> Section | None:
    """Loss by level beside that of guessing; None for a score that only counts."""
    levels = diagnostics.levels
    if not levels:
        return None
    weakest = min(levels, key=_gained)
    return Section(
        key="loss",
        title="Loss, level by level",
        meaning="How well each level of the tree predicts where the next item is: a level at the height of the grey "
        "bar guesses, and beam search cannot be better than the levels it passes through.",
        reading=f"The loss on the leaves is {levels[-1].loss.mean:.2f} nats; a uniform guess has "
        f"{levels[-1].chance:.2f}. Level {weakest.level} has the smallest gain: {_gained(weakest):.0%} below "
        "guessing.",
        plot=plot_loss(diagnostics),
        tables=(
            table_of(
                levels,
                {
                    **LEVEL,
                    "loss": lambda level: cell(level.loss),
                    "guessing": lambda level: f"{level.chance:.3f}",
                    "gained": lambda level: f"{_gained(level):.1%}",
                },
            ),
        ),
        definition="Full softmax cross-entropy, in nats, of the ancestor of a held-out next item among all nodes of "
        "the level that have an item below them, by what is learned "
        f"({' and '.join(diagnostics.subject.learned)}); ± is the standard error over users." + estimated(diagnostics),
        remedy="Near guessing everywhere: train longer, or check the learning rate. Good above, poor on the leaves: "
        "more negatives (--negatives). With rectified labels (dtr-t-rl) upper levels are meant to rank the best item "
        "below, not to predict the next one, so their loss may stay high."
        if diagnostics.labels is not None
        else "Poor on the leaves: train the encoder longer (estimator.epochs), or a wider one (estimator.width). Upper "
        "levels are not trained: their vectors follow the best item below, so that their loss may stay high while the "
        "search finds everything.",
    )


def _gained(level: LevelReport) -> float:
    """How far the loss of a level is below that of guessing, as a share of the latter."""
    return 1 - level.loss.mean / level.chance if level.chance else 0.0


def beams_section(diagnostics: Diagnostics) -> Section:
    """Beam search against an exact scan."""
    beams = diagnostics.beams
    own = result_at(diagnostics, diagnostics.subject.beam_width)
    enough = narrowest_enough(beams)
    advice = "At no measured width" if enough is None else f"A beam of {enough.width} is enough: from there on"
    return Section(
        key="beams",
        title="Beam search against an exact scan",
        meaning="The loss from not scoring every item: the overlap is the recall of the exact "
        "top 20, the lost F@20 the effect on accuracy.",
        reading=f"At a beam of {own.width} the search finds {percent(own.overlap)} of the exact top 20 and F@20 is "
        f"{own.f.mean:.4f} against {beams.scan_f.mean:.4f} by the scan. {advice} the lost F@20 is within its standard "
        "error or 1 % of the scan's.",
        plot=plot_beams(beams),
        tables=(
            table_of(
                beams.results,
                {
                    "beam": lambda result: str(result.width),
                    "overlap at 20": lambda result: cell(result.overlap),
                    "F@20": lambda result: cell(result.f, digits=4),
                    "lost F@20": lambda result: cell(result.lost_f, digits=4),
                    "nodes scored": lambda result: f"{result.scored_nodes:,.0f}",
                },
            ),
        ),
        definition=f"{beams.users:,} users, k = 20, {diagnostics.subject.protocol}. Lost F@20 = that of the exact "
        "scan minus that of the beam; below 0 the beam is better. A beam grows by the number of excluded "
        "items, at most to twice its width, as when serving. Nodes scored: on average and at most; the scan "
        f"scores {beams.num_leaves:,}. The grey line is the model's beam width.",
        remedy="Low overlap but no loss: leave it, beam search misses items that the score overrates. F@20 lost: "
        "widen the beam (retrieval.beam_width, --beam), and look at the max-heap section for the level that drops the "
        "right nodes.",
    )


def heap_section(diagnostics: Diagnostics) -> Section | None:
    """Sibling pairs that contradict what is below them; None for a score that only counts."""
    if not diagnostics.levels:
        return None
    return Section(
        key="heap",
        title="Max-heap violations",
        meaning="Beam search assumes that a node ranks as high as the best item below it; this is how often the model "
        "violates that assumption.",
        reading=_read_heap(diagnostics),
        plot=plot_heap(diagnostics),
        tables=(
            table_of(
                diagnostics.levels[:-1],
                {
                    **LEVEL,
                    "against best child": lambda level: share_cell(level.child_violations),
                    "against best leaf": lambda level: share_cell(level.leaf_violations),
                    "on the paths to the top 20": lambda level: share_cell(level.path_violations),
                    "outside the beam": lambda level: share_cell(level.lost_paths),
                },
            ),
        ),
        definition="Each level has a separate softmax, so only the order of scores is comparable between levels. A "
        "pair of siblings is a violation if their scores are ordered one way and the best scores below them the other "
        "way: the best among their children, or among all leaves below. Chance level is 50 %. On "
        "the paths to the top 20: only siblings whose parent is an ancestor of one of the 20 best leaves of an exact "
        "scan. Outside the beam: the share of these leaves whose ancestor is not among the best nodes of its level, "
        "up to the beam width. Scores are those of the trained parts "
        f"({' and '.join(diagnostics.subject.learned)}): memory is a max-heap by construction."
        + estimated(diagnostics),
        remedy="A wider beam tolerates violations; widen it until almost none of the top 20 is lost."
        + (
            " Rectified labels (--method dtr-t-rl) train for this property, and more rounds (--rounds 3) move "
            "items to the parents that their users prefer: check the validation metrics."
            if diagnostics.labels is not None
            else ""
        ),
    )


def _read_heap(diagnostics: Diagnostics) -> str:
    worst = worst_heap_level(diagnostics)
    reading = "The tree has a single level: there can be no violations."
    if worst is not None:
        reading = (
            f"Most violations on the paths to the top 20, where the beam has to choose: level {worst[0]}, "
            f"{percent(worst[1])} of sibling pairs."
        )
    lost = [(level.lost_paths.mean, level.level) for level in diagnostics.levels[:-1] if level.lost_paths is not None]
    if lost:
        share, level = max(lost, key=lambda entry: entry[0])
        reading += f" With a beam of {diagnostics.subject.beam_width}, "
        reading += (
            f"level {level} drops most: {share:.1%} of the top 20 leaves have an ancestor there that ranks outside it."
            if share > 0.0
            else "every ancestor of the top 20 leaves ranks inside the beam."
        )
    return reading


def sampling_section(diagnostics: Diagnostics) -> Section | None:
    """KL(Q || P) of the samplers by level; None for a score without attention, which draws nothing down the tree."""
    if diagnostics.labels is None:
        return None
    subject, leaves = diagnostics.subject, diagnostics.levels[-1]
    if diagnostics.sampling_start > subject.height:
        reading = f"No level has more than {subject.negatives + 1} nodes, so training scores all and samples nothing."
    else:
        reading = (
            f"Training drew negatives {subject.sampler}. On the leaves uniform sampling is "
            f"{leaves.uniform.mean:.2f} nats from the softmax and top-down {leaves.from_level.mean:.2f}."
        )
    return Section(
        key="sampling",
        title="Divergence of the negative sampler from the softmax",
        meaning="Training uses sampled negatives: the further the sampler is from the model's "
        "softmax (KL, 0 is perfect), the more its gradient differs from that of the full softmax.",
        reading=reading,
        plot=plot_sampling(diagnostics),
        tables=(
            table_of(
                diagnostics.levels,
                {
                    **LEVEL,
                    "uniform": lambda level: cell(level.uniform),
                    "top-down from the root": lambda level: cell(level.from_root),
                    f"from level {diagnostics.sampling_start}": lambda level: cell(level.from_level),
                    "in training": lambda level: "full" if level.taken_whole else "sampled",
                },
            ),
        ),
        definition="KL(Q||P) in nats, averaged over histories. P: softmax of the model's scores over the level's "
        "nodes. Q: uniform over them, or top-down, the product along a node's path of the softmaxes over siblings. "
        f"Training starts top-down paths from the exact softmax of level {diagnostics.sampling_start}; levels of at "
        f"most {subject.negatives + 1} nodes are scored in full, without sampling." + estimated(diagnostics),
        remedy="Uniform far above top-down: --method dtr-t, or more negatives. Top-down large too, and growing with "
        "depth: parents do not yet summarise their children; train longer or relearn the tree (--rounds 3).",
    )
