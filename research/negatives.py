"""Other ways of drawing negatives: more on deeper levels, and other starts, corrections and modes of draws down a tree.

Adaptive sampling is the paper's appendix on it: level l gets negatives in proportion to 1 + alpha * l, and the whole
tree as many as with the same number on each level. Draws down a tree have no number of their own on each level, so that
this is for uniform negatives alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from beamtree.errors import InputError
from beamtree.model.score import PreparedScore, Score
from beamtree.native.training import Negatives, PathStart
from beamtree.training.instances import Batch
from beamtree.training.negatives import Candidates, UniformNegatives, same_on_every_level
from beamtree.training.paths import Paths, PathSteps
from beamtree.training.tree_negatives import (
    among_negatives,
    empty_candidates,
    evaluation_mode,
    fill_drawn,
    fill_whole,
)
from beamtree.tree.item_tree import ItemTree
from beamtree.types import Float32Array, Int64Array

PathCorrection = Literal["negatives", "published"]
PathMode = Literal["evaluation", "training"]


@dataclass(frozen=True)
class AdaptiveSampler:
    """Uniform negatives, `count` per level on average, more of them on deeper levels by alpha."""

    count: int
    alpha: float

    @property
    def name(self) -> str:
        """As in `NegativeSampler`."""
        return f"uniformly, {self.count} per level on average, alpha {self.alpha:g}"

    def draws(self, score: Score) -> UniformNegatives:
        """As in `NegativeSampler`."""
        return UniformNegatives(score.tree, counts=self._counts(score.tree), levels=score.learned_levels())

    def in_kernels(self, tree: ItemTree) -> Negatives:
        """As in `NegativeSampler`."""
        return Negatives(self._counts(tree), sampler="uniform")

    def _counts(self, tree: ItemTree) -> Int64Array:
        return negatives_per_level(tree, negatives=self.count, alpha=self.alpha)


@dataclass(frozen=True)
class PathSampler:
    """`count` paths down the tree.

    start: where they begin: at the exact softmax of the first level that is not taken whole ("level", as in the
    product), at the root, as the paper's text has it, or anew at that of every level, exact and slow, to compare the
    others with. correction: "negatives" divides q by 1 - q of the positive, because the loss wants the distribution
    over the negatives alone; "published" leaves that out, as the published code does. mode: whether draws go by the
    model as it is in use, or with the dropout and the batch statistics of training, as in the published code.
    """

    count: int
    start: PathStart = "level"
    correction: PathCorrection = "negatives"
    mode: PathMode = "evaluation"

    @property
    def name(self) -> str:
        """As in `NegativeSampler`."""
        return f"down the tree, {self.count} paths, start {self.start}, correction {self.correction}, mode {self.mode}"

    def draws(self, score: Score) -> "PathNegatives":
        """As in `NegativeSampler`."""
        return PathNegatives(score, self)

    def in_kernels(self, tree: ItemTree) -> Negatives:
        """As in `NegativeSampler`."""
        return Negatives(
            same_on_every_level(tree, self.count),
            sampler="top_down",
            start=self.start,
            correct_positive=self.correction == "negatives",
            with_dropout=self.mode == "training",
        )


class PathNegatives:
    """The draws of a `PathSampler`, in torch."""

    def __init__(self, score: Score, sampler: PathSampler) -> None:
        """InputError for paths from the root where the levels below it are not learned."""
        self._score, self._sampler = score, sampler
        self._steps = PathSteps(score, count=sampler.count)
        self._first_level = min(score.learned_levels(), default=1)
        if self._first_level > 1 and sampler.start == "root":
            raise InputError(
                f"Expected paths that start at a level, as levels above {self._first_level} are not learned, got "
                "start = 'root'. Start at 'level', or learn all levels (model.attention_levels)."
            )
        self._dropout_generator = torch.Generator(score.device) if sampler.mode == "training" else None

    @torch.no_grad()
    def draw(self, batch: Batch, *, generator: np.random.Generator) -> Candidates:
        """Candidates for each level and instance; no gradient flows through the choice."""
        tree, start, targets = self._score.tree, self._sampler.start, batch.targets[:, 0]
        found = empty_candidates(tree, len(batch), count=self._sampler.count)
        if self._dropout_generator is not None:
            self._dropout_generator.manual_seed(int(generator.integers(2**63)))
        score_nodes = self._score.prepare(batch.requests, dropout=self._dropout_generator)
        paths = self._at_root(len(batch)) if start == "root" else None
        with evaluation_mode(self._score) if self._dropout_generator is None else training_mode(self._score):
            for level in range(self._first_level, tree.height + 1):
                positives, nodes = tree.item_ancestors(targets, level), self._steps.occupied[level]
                is_whole, is_uniform = len(nodes) <= self._sampler.count + 1, False
                if paths is not None:
                    paths = self._steps.descend(paths, score_nodes, targets, level=level, generator=generator)
                elif not is_whole:
                    is_uniform = 1 < level == self._first_level and start == "level"
                    paths = self._first(score_nodes, positives, level=level, is_uniform=is_uniform, generator=generator)
                if is_whole or paths is None:
                    fill_whole(found, positives, nodes=nodes, level=level, tree=tree)
                else:
                    log_q = self._log_q(paths, is_uniform=is_uniform)
                    fill_drawn(found, positives, paths.nodes, log_q=log_q, level=level, tree=tree)
                if start == "every":
                    paths = None
        return found

    def _at_root(self, instances: int) -> Paths:
        shape = (instances, self._sampler.count)
        certain = np.zeros(shape, dtype=np.float32)
        return Paths(np.zeros(shape, dtype=np.int64), certain, certain[:, 0])

    def _first(
        self,
        score_nodes: PreparedScore,
        positives: Int64Array,
        *,
        level: int,
        is_uniform: bool,
        generator: np.random.Generator,
    ) -> Paths:
        """The first draws of paths, or those of a level that is drawn by itself."""
        if is_uniform:
            return self._steps.uniformly(len(positives), level=level, generator=generator)
        return self._steps.from_softmax(score_nodes, positives, level=level, generator=generator)

    def _log_q(self, paths: Paths, *, is_uniform: bool) -> Float32Array:
        """What the draws are corrected by; uniform ones always by their share of the negatives."""
        return among_negatives(paths) if self._sampler.correction == "negatives" or is_uniform else paths.log_q


def negatives_per_level(tree: ItemTree, *, negatives: int, alpha: float) -> Int64Array:
    """How many negatives levels 1 to height get: in proportion to 1 + alpha * level, `negatives` on average.

    The total is negatives * height; whole numbers by largest remainders, at least one each.
    """
    shares = 1.0 + alpha * np.arange(1, tree.height + 1)
    total = negatives * tree.height
    exact = total * shares / shares.sum()
    counts = np.floor(exact).astype(np.int64)
    by_remainder = np.argsort(counts - exact, kind="stable")
    counts[by_remainder[: total - counts.sum()]] += 1
    return np.asarray(np.maximum(counts, 1))


@contextmanager
def training_mode(score: Score) -> Iterator[None]:
    """Inside, the score is as in training but for its running statistics, which stay; then as it was."""
    was_training = score.training
    norms = [module for module in score.modules() if isinstance(module, _BatchNorm)]
    score.train()
    for norm in norms:
        norm.track_running_stats = False
    try:
        yield
    finally:
        score.train(was_training)
        for norm in norms:
            norm.track_running_stats = True
