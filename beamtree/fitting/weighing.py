"""The parts of a score put together: memory is counted, and what each part counts is chosen on validation users."""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from beamtree.config import Config
from beamtree.data.parse import seconds_per_unit
from beamtree.data.split import HeldOut
from beamtree.evaluation.answers import BeamSearch
from beamtree.evaluation.labels import reachable_labels
from beamtree.evaluation.protocol import evaluate, excludes_seen, held_out_requests
from beamtree.fitting.calibration import (
    FEWEST_USERS,
    LEARNED,
    TOWER,
    TREND,
    Calibrated,
    Choice,
    PartWeights,
    calibrate,
    evidence_weights,
    grid_units,
    repeats_evidence,
    transitions_evidence,
    tried_fades,
    tried_repeat_fades,
)
from beamtree.fitting.pool import CANDIDATES_EACH, CandidatePool, gather_candidates
from beamtree.fitting.run import FitRun
from beamtree.fitting.trend import KnownInteractions, TrendChoice, weigh_trend
from beamtree.fitting.validation import CUTOFFS, reaches_level, sample_users
from beamtree.model.memory import BALANCE, Memory, MemoryWeights
from beamtree.model.part import MakePartOnTree
from beamtree.model.trend import Trend
from beamtree.retrieval.engine import Engine
from beamtree.retrieval.scorers import build_scorer
from beamtree.scorer import Scorer
from beamtree.training.events import PartsWeighed
from beamtree.training.trainer import SELECTION_METRIC
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

MORE_USERS = 4
"""So many times the users of a validation are asked once for good: weights that suit few of them suit nobody else."""


@dataclass(frozen=True)
class Weighed:
    """All arrays of a score by part and name, and what a model keeps of how its weights came about."""

    arrays: dict[str, AnyArray]
    report: dict[str, Any]


def weigh(
    run: FitRun, learned: Mapping[str, AnyArray], tree: ItemTree, *, parts: Mapping[str, MakePartOnTree] | None
) -> Weighed:
    """Count memory where it is a part, and weigh it and the tower beside what was learned in rounds.

    learned: arrays of all other parts, the tower's among them. parts: makes learned parts of other people.
    """
    started, config = time.monotonic(), run.config
    memory = None
    if "memory" in config.model.parts:
        memory = Memory.count(
            run.dataset.sequences,
            run.split.train,
            num_items=len(run.dataset.items),
            megabytes=config.model.memory_megabytes,
            balance=config.model.weights.get("balance", BALANCE),
            counters=run.backend.counters,
        )
        if run.dataset.timestamps is not None and seconds_per_unit(pl.Series(run.dataset.timestamps)) is not None:
            memory = replace(memory, trend=Trend(moment=float(run.dataset.timestamps.max())))
    choice = Choice(
        has_learned=any(not name.startswith("tower/") for name in learned),
        has_tower="tower" in config.model.parts,
        has_memory=memory is not None,
        repeats_can_return=memory is not None and not excludes_seen(config),
        people_repeat=not config.retrieval.excludes_seen,
        fixed=config.model.weights,
    )
    users = sample_users(run.split.validation, config=config, seed=config.training.seed, times=MORE_USERS)
    on_step = run.stop_while("weighing the parts of the score")
    pool = None
    if len(users) >= FEWEST_USERS:
        scorers = _scorers(learned, memory, tree, run=run, choice=choice, parts=parts)
        pool = _candidates_of(users, scorers, tree, run=run, choice=choice, on_step=on_step)
        if memory is not None:
            pool = _with_popularity(pool, memory)
    calibrated = _calibrated(pool, choice)
    weights = calibrated.weights
    arrays = dict(learned)
    report: dict[str, Any] = {"trials": calibrated.trials}
    if choice.has_tower:
        arrays["tower/weight"] = np.array(weights.tower, dtype=np.float32)
        report["tower"] = weights.tower
    trend = None
    if memory is not None:
        memory = memory.weighed(weights.memory)
        arrays |= _named(memory)
        trend = _weighed_trend(arrays, tree, users, run=run, parts=parts)
        if trend is not None:
            memory = replace(memory, weights=replace(memory.weights, trend=trend.choice.weight), trend=trend.then)
            arrays |= _named(memory)
            report["trend"] = asdict(trend.choice)
        report["memory"] = asdict(memory.weights)
        report["links"] = len(memory.transitions.items) + len(memory.company.items)
        report["memory_bytes"] = sum(array.nbytes for name, array in arrays.items() if name.startswith("memory/"))
    metric = None
    if len(users):
        on_step()
        search = BeamSearch(
            Engine(build_scorer(arrays, tree, config=config, parts=parts), tree), config.retrieval.beam_width
        )
        metric = evaluate(search, run.dataset, users, config=config, cutoffs=CUTOFFS)[SELECTION_METRIC]
    if memory is not None and trend is not None:
        arrays |= _named(replace(memory, trend=trend.now))
    seconds = time.monotonic() - started
    run.listen(PartsWeighed(_settings(choice, report), metric, is_calibrated=pool is not None, seconds=seconds))
    return Weighed(arrays, report | {"validation": metric, "seconds": round(seconds, 1)})


@dataclass(frozen=True, eq=False)
class _WeighedTrend:
    """What the trend counts, and the trend itself when validation begins and when it is over."""

    choice: TrendChoice
    then: Trend
    now: Trend


def _weighed_trend(
    arrays: Mapping[str, AnyArray],
    tree: ItemTree,
    users: HeldOut,
    *,
    run: FitRun,
    parts: Mapping[str, MakePartOnTree] | None,
) -> _WeighedTrend | None:
    """The trend where everything after a moment is held out; None elsewhere, and in a log without dates."""
    if run.config.data.holdout != "time" or TREND in run.config.model.weights or not len(users):
        return None
    known = KnownInteractions.before(users, run.dataset)
    known_later = KnownInteractions.before(run.split.test, run.dataset)
    if known is None or known_later is None:
        return None
    engine = Engine(build_scorer(arrays, tree, config=run.config, parts=parts), tree)
    choice = weigh_trend(engine, run.dataset, users, known=known, config=run.config)
    return _WeighedTrend(choice, known.trend(choice.half_life), known_later.trend(choice.half_life))


def _candidates_of(
    users: HeldOut,
    scorers: Mapping[str, Scorer],
    tree: ItemTree,
    *,
    run: FitRun,
    choice: Choice,
    on_step: Callable[[], None],
) -> CandidatePool:
    """What each kind of evidence would recommend to these users, and what all of them say of it."""
    config = run.config
    reachable = reachable_labels(users, run.dataset.sequences, config=config)
    return gather_candidates(
        held_out_requests(run.dataset, reachable.users, exclude_seen=reachable.excludes_seen),
        reachable.labels,
        tree,
        scorers=scorers,
        proposers=[name for name in scorers if name in _proposers(choice, tree, config=config)],
        beam_width=config.retrieval.beam_width,
        on_step=on_step,
    )


def _calibrated(pool: CandidatePool | None, choice: Choice) -> Calibrated:
    """Weights that are best for the users of a pool, in the geometric mean of F and NDCG: both must be good."""
    if pool is None:
        return calibrate(None, choice, units={})

    def measure(weights: PartWeights) -> float:
        metrics = pool.measure(evidence_weights(weights, choice))
        return float(np.sqrt(metrics["f@20"] * metrics["ndcg@20"]))

    return calibrate(measure, choice, units=grid_units(choice, pool.spread))


def _scorers(
    learned: Mapping[str, AnyArray],
    memory: Memory | None,
    tree: ItemTree,
    *,
    run: FitRun,
    choice: Choice,
    parts: Mapping[str, MakePartOnTree] | None,
) -> dict[str, Scorer]:
    """One scorer for each kind of evidence, by the names that calibration knows; popularity is known of every item."""
    config = run.config
    scorers: dict[str, Scorer] = {}
    if choice.has_learned:
        rounds = {name: array for name, array in learned.items() if not name.startswith("tower/")}
        scorers[LEARNED] = build_scorer(rounds, tree, config=config, parts=parts)
    if choice.has_tower:
        tower = {name: array for name, array in learned.items() if name.startswith("tower/")}
        tower["tower/weight"] = np.ones((), dtype=np.float32)
        scorers[TOWER] = build_scorer(tower, tree, config=config)
    if memory is not None:
        kinds = {
            transitions_evidence(fade): MemoryWeights(transitions=1.0, popularity=0.0, fade=fade)
            for fade in tried_fades(config.model.weights)
        }
        kinds["company"] = MemoryWeights(transitions=0.0, popularity=0.0, company=1.0)
        kinds["popularity"] = MemoryWeights(transitions=0.0, popularity=1.0)
        if choice.repeats_can_return:
            kinds |= {
                repeats_evidence(fade): MemoryWeights(transitions=0.0, popularity=0.0, repeats=1.0, repeat_fade=fade)
                for fade in tried_repeat_fades(config.model.weights)
            }
        for name, weights in kinds.items():
            scorers[name] = build_scorer(_named(memory.weighed(weights)), tree, config=config)
    return scorers


def _proposers(choice: Choice, tree: ItemTree, *, config: Config) -> set[str]:
    """Whose own recommendations are candidates: all but attention on levels that no beam of its own reaches."""
    fades = tried_fades(choice.fixed)
    repeats = tried_repeat_fades(choice.fixed)[-1]
    ends = {transitions_evidence(fades[0]), transitions_evidence(fades[-1])}
    first_level = config.model.attention_range(tree.height).start
    is_reached = reaches_level(first_level, tree, beam_width=max(config.retrieval.beam_width, CANDIDATES_EACH))
    others = {TOWER, *ends, "company", "popularity", repeats_evidence(repeats)}
    return others | {LEARNED} if is_reached else others


def _with_popularity(pool: CandidatePool, memory: Memory) -> CandidatePool:
    """The pool with the popularity of all candidates that memory points to, as its sum counts it."""
    counted = [values for name, values in pool.evidence.items() if name not in (LEARNED, TOWER)]
    pointed_to = np.any([values > 0 for values in counted], axis=0)
    popularity = np.where(pointed_to, memory.popularity[np.maximum(pool.items, 0)], np.float32(0))
    return CandidatePool(pool.items, {**pool.evidence, "popularity": popularity}, pool.labels, num_items=pool.num_items)


def _settings(choice: Choice, report: Mapping[str, Any]) -> dict[str, float]:
    """What was chosen, by the names of the settings that fix it."""
    chosen = {TOWER: report["tower"]} if choice.has_tower else {}
    kinds = {name: value for name, value in report.get("memory", {}).items() if name != TREND}
    return {f"model.weights.{name}": value for name, value in {**chosen, **kinds}.items()}


def _named(memory: Memory) -> dict[str, AnyArray]:
    return {f"memory/{name}": array for name, array in memory.arrays().items()}
