"""The loop of all tree systems: train over the tree, reassign the items, keep the best round."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from beamtree.baselines.protocol import CurvePoint
from beamtree.baselines.trees.beam_index import BeamIndex
from beamtree.baselines.trees.method import MakeScorer, Method, Replanting
from beamtree.baselines.trees.run import Plan, TreeRun, make_plan, round_settings
from beamtree.errors import DivergedError
from beamtree.evaluation.protocol import evaluate
from beamtree.fitting.first_tree import plant_first_tree
from beamtree.model.score import Score, build_score
from beamtree.retrieval.engine import Engine
from beamtree.training.checkpoint import Arrays, copied
from beamtree.training.events import Event, Validated
from beamtree.training.randomness import seed_for
from beamtree.training.rounds import Rounds, load_rounds, round_seed, save_rounds
from beamtree.training.schedule import model_schedule
from beamtree.training.trainer import SELECTION_METRIC, CheckpointPlan, Trainer
from beamtree.tree.item_tree import ItemTree
from beamtree.types import AnyArray

ROUND_SHARE = 0.85
"""Of the time of a round, what its training may take; learning the tree has the rest."""
RELEARNED_SHARE = 0.25
"""Instances that learning the tree reads for each that the round learned from: they cost about as much."""

log = logging.getLogger(__name__)


class Trained(NamedTuple):
    """Weights after a round, the validation by which they were chosen (empty without one), and how many steps."""

    weights: Arrays
    validation: Mapping[str, float]
    steps: int

    @property
    def selection(self) -> float:
        """What the best is chosen by; 0 without validation users."""
        return self.validation.get(SELECTION_METRIC, 0.0)


def learn(run: TreeRun, method: Method, *, start: Rounds | None = None) -> Rounds:
    """All rounds, or what is left of them where the run's folder has some. start: None plants a first tree."""
    rounds = _kept(run) or start or first_rounds(run)
    plan = _planned(run, method, rounds)
    while rounds.round < plan.rounds and not (rounds.reports and run.budget.is_spent):
        learning_rate, trained = _learn_round(run, method, rounds, plan=plan)
        report = {
            "learning_rate": learning_rate,
            "plan": [plan.rounds, plan.steps],
            "steps": trained.steps,
            "validation": dict(trained.validation),
        }
        log.info("%s, round %d of %d: %s", run.name, rounds.round + 1, plan.rounds, report)
        rounds.finish(trained.weights, report, score=trained.validation.get(SELECTION_METRIC))
        learned = _instances_before(run, rounds)
        run.budget.record(
            CurvePoint(run.name, rounds.round - 1, learning_rate, learned, trained.validation, is_round=True)
        )
        if method.replant is not None and rounds.round < plan.rounds:
            _replant(run, method, rounds, plan=plan)
        if run.directory is not None:
            save_rounds(run.directory / "rounds", rounds, identity=run.identity)
    return rounds


def first_rounds(run: TreeRun) -> Rounds:
    """Before anything is learned: the first tree and fresh weights."""
    tree, item_vectors = plant_first_tree(
        run.dataset, run.split.train, config=run.config, on_step=run.budget.stop_if_asked
    )
    score = build_score(run.config, tree, seed=seed_for(run.budget.seed, "weights"))
    if item_vectors is not None:
        score.start_from_items(item_vectors)
    return Rounds.first(tree, score.arrays())


def index_of(run: TreeRun, rounds: Rounds, *, make_scorer: MakeScorer) -> BeamIndex:
    """The index of the best round."""
    return beam_index(run, rounds.best_weights, rounds.best_tree, make_scorer=make_scorer)


def beam_index(run: TreeRun, weights: Mapping[str, AnyArray], tree: ItemTree, *, make_scorer: MakeScorer) -> BeamIndex:
    """Beam search with weights over a tree."""
    index_bytes = weights["attention/node_table"].nbytes + tree.item_at_leaf.nbytes + tree.leaf_of_item.nbytes
    engine = Engine(make_scorer(weights, tree, run.config), tree)
    return BeamIndex(engine, run.config.retrieval.beam_width, index_bytes)


def _kept(run: TreeRun) -> Rounds | None:
    return None if run.directory is None else load_rounds(run.directory / "rounds", identity=run.identity)


def _planned(run: TreeRun, method: Method, rounds: Rounds) -> Plan:
    """The plan that the first round was learned by, or a new one."""
    if rounds.reports:
        return Plan(*rounds.reports[0]["plan"])
    score = _score_of(run, rounds.weights, rounds.tree)
    instances = method.label(run.instances, rounds.tree)
    return make_plan(run, method.make_learner(score, run.config), instances, max_rounds=method.max_rounds)


def _instances_before(run: TreeRun, rounds: Rounds) -> int:
    """Instances that the finished rounds learned from, with the learning rate that was kept."""
    steps: int = sum(report["steps"] for report in rounds.reports)
    return run.batch_size * steps


def _score_of(run: TreeRun, weights: Mapping[str, AnyArray], tree: ItemTree) -> Score:
    score = build_score(run.config, tree, seed=0)
    score.load_arrays(weights)
    return score


def _learn_round(run: TreeRun, method: Method, rounds: Rounds, *, plan: Plan) -> tuple[float, Trained]:
    """Train over the tree of this round; in the first, with each learning rate, of which the best is kept.

    DivergedError where the loss diverges with all of them.
    """
    rates: Sequence[float] = run.recipe.learning_rates
    if rounds.reports:
        rates = [rounds.reports[0]["learning_rate"]]
    found: list[tuple[float, Trained]] = []
    diverged: DivergedError | None = None
    for place, rate in enumerate(rates):
        trainings_left = plan.rounds - rounds.round + len(rates) - 1 - place
        try:
            found.append((rate, _train(run, method, rounds, plan=plan, rate=rate, trainings_left=trainings_left)))
        except DivergedError as error:
            log.info("%s diverges with a learning rate of %g.", run.name, rate)
            diverged = error
    if not found:
        raise diverged or DivergedError(f"{run.name} was given no learning rate.")
    return max(found, key=lambda each: each[1].selection)


def _train(run: TreeRun, method: Method, rounds: Rounds, *, plan: Plan, rate: float, trainings_left: int) -> Trained:
    """One training from the weights of the round before."""
    seed = round_seed(run.budget.seed, rounds.round)
    settings = round_settings(run, steps=plan.steps, learning_rate=rate, seed=seed)
    config = run.config.model_copy(update={"training": settings})
    score = _score_of(run, rounds.weights, rounds.tree)
    instances = run.instances.with_seed(seed)
    checkpoints = None
    if run.directory is not None:
        directory = run.directory / f"round-{rounds.round}-rate-{rate:g}"
        minutes = config.training.schedule.checkpoint_minutes
        checkpoints = CheckpointPlan(directory, run.identity, resume=True, minutes=minutes)

    def validate() -> Mapping[str, float]:
        index = beam_index(run, score.arrays(), rounds.tree, make_scorer=method.make_scorer)
        return evaluate(index, run.dataset, run.validation_users, config=run.config, cutoffs=(20,))

    before = _instances_before(run, rounds)

    def listen(event: Event) -> None:
        if isinstance(event, Validated):
            learned = before + event.step * run.batch_size
            run.budget.record(CurvePoint(run.name, rounds.round, rate, learned, event.metrics))
        run.budget.listen(event)

    progress = Trainer(
        run.name,
        method.make_learner(score, config),
        method.label(instances, rounds.tree),
        schedule=model_schedule(config.training, num_instances=len(instances)),
        validate=validate if len(run.validation_users) else None,
        plan=checkpoints,
        listen=listen,
        should_stop=run.budget.should_stop,
        max_seconds=share_of_time(run, ROUND_SHARE / trainings_left),
    ).run()
    return Trained(copied(score.arrays()), progress.best_validation(), progress.step)


class _TimeIsUpError(Exception):
    """Ends learning a tree."""


def _replant(run: TreeRun, method: Method, rounds: Rounds, *, plan: Plan) -> None:
    """Reassign the items by the finished round; if there is no time, they stay."""
    assert method.replant is not None
    learned = plan.steps * run.batch_size
    per_item = max(1, round(RELEARNED_SHARE * learned / len(run.dataset.items)))
    is_over = after_share(run, 1.0 / (plan.rounds - rounds.round + 1))
    score = _score_of(run, rounds.weights, rounds.tree)

    def on_step() -> None:
        run.budget.stop_if_asked()
        if is_over():
            raise _TimeIsUpError

    try:
        tree = method.replant(Replanting(run, score, rounds, per_item, on_step))
    except _TimeIsUpError:
        log.info("%s: no time to learn the tree after round %d; the items stay.", run.name, rounds.round)
        return
    moved = float((tree.leaf_of_item != rounds.tree.leaf_of_item).mean())
    rounds.reports[-1] |= {"moved_share": moved}
    rounds.replant(tree, transfer=method.transfer, node_tables=score.node_tables())


def share_of_time(run: TreeRun, share: float) -> float | None:
    """Seconds: this share of the time that is left now; None without a bound."""
    return None if run.seconds_left is None else share * run.seconds_left


def after_share(run: TreeRun, share: float) -> Callable[[], bool]:
    """Whether this share of the time that is left now has passed; never without a bound."""
    seconds = share_of_time(run, share)
    deadline = math.inf if seconds is None else time.monotonic() + seconds
    return lambda: time.monotonic() >= deadline
