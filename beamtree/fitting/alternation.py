"""Rounds: train the model over the tree, reassign the items by the trained model, repeat; the best round is kept."""

import time
from functools import partial
from typing import Any

from beamtree.fitting.computation import build_candidate_scores, build_learner, learning_device
from beamtree.fitting.first_tree import plant_first_tree
from beamtree.fitting.run import FitRun, identity_of
from beamtree.fitting.tower import build_tower
from beamtree.fitting.validation import MAX_SCANNED_ITEMS, LazyTower, model_validation, sample_users
from beamtree.model.estimator import Estimator
from beamtree.model.score import Score, build_score
from beamtree.training.checkpoint import Identity
from beamtree.training.events import TREE_MODEL, TreeRelearned
from beamtree.training.labels import LabelledInstances
from beamtree.training.placement import Placement
from beamtree.training.randomness import seed_for
from beamtree.training.relearn import Relearned
from beamtree.training.rounds import Rounds, forget_rounds, load_rounds, round_seed, save_rounds
from beamtree.training.schedule import model_schedule
from beamtree.training.strategies import Strategies
from beamtree.training.trainer import SELECTION_METRIC, CheckpointPlan, Trainer
from beamtree.tree.item_tree import ItemTree


def learn_in_rounds(run: FitRun, strategies: Strategies, *, estimator: Estimator | None) -> Rounds:
    """All rounds of the settings, or the remaining ones of a resumed fit. estimator: that of rectified labels.

    With a folder for checkpoints, the state is saved there between rounds, and by the trainer within a round.
    """
    config = run.config
    identity = identity_of(run.dataset, config=config, strategies=strategies.beside(config))
    rounds, score = _begin(run, identity=identity)
    if not run.parts:
        return rounds
    while rounds.round < config.training.rounds:
        report = _learn_round(run, strategies, score, rounds, estimator=estimator, identity=identity)
        rounds.finish(score.arrays(), report, score=report["validation"].get(SELECTION_METRIC))
        if rounds.round < config.training.rounds:
            started = time.monotonic()
            relearned = _relearn(run, strategies.placement, score, rounds)
            rounds.replant(relearned.tree, transfer=strategies.placement.transfer, node_tables=score.node_tables())
            score = _score_of(run, rounds)
            report |= {
                "moved_share": relearned.moved_share,
                "score_before": relearned.score_before,
                "score_after": relearned.score_after,
                "relearning_seconds": time.monotonic() - started,
            }
            run.listen(
                TreeRelearned(rounds.round, relearned.moved_share, relearned.score_before, relearned.score_after)
            )
        _keep(run, rounds, identity=identity)
    return rounds


def _begin(run: FitRun, *, identity: Identity) -> tuple[Rounds, Score]:
    """The rounds of a resumed run, or the state before the first round; and the score to train next."""
    if run.work is not None and run.work.resume:
        kept = load_rounds(run.work.directory / "rounds", identity=identity)
        if kept is not None:
            return kept, _score_of(run, kept)
    elif run.work is not None:
        forget_rounds(run.work.directory)
    started = time.monotonic()
    on_step = run.stop_while("planting the first tree")
    tree, first_vectors = plant_first_tree(
        run.dataset,
        run.split.train,
        config=run.config,
        item_vectors=None if run.encoder is None else run.encoder.item_vectors(),
        on_step=on_step,
    )
    score = _fresh_score(run, tree)
    if first_vectors is not None:
        score.start_from_items(first_vectors)
    rounds = Rounds.first(tree, score.arrays())
    rounds.planting_seconds = time.monotonic() - started
    _keep(run, rounds, identity=identity)
    return rounds, score.to(learning_device(run.config))


def _score_of(run: FitRun, rounds: Rounds) -> Score:
    """The score over the tree of the next round, with its initial weights."""
    score = _fresh_score(run, rounds.tree)
    score.load_arrays(rounds.weights)
    return score.to(learning_device(run.config))


def _fresh_score(run: FitRun, tree: ItemTree) -> Score:
    return build_score(run.config, tree, seed=seed_for(run.config.training.seed, "weights"), parts=run.parts)


def _keep(run: FitRun, rounds: Rounds, *, identity: Identity) -> None:
    if run.work is not None:
        save_rounds(run.work.directory / "rounds", rounds, identity=identity)


def _learn_round(
    run: FitRun,
    strategies: Strategies,
    score: Score,
    rounds: Rounds,
    *,
    estimator: Estimator | None,
    identity: Identity,
) -> dict[str, Any]:
    """Train the score over the tree of this round; a report on the training."""
    seed = run.config.training.seed
    settings = run.config.training.model_copy(update={"seed": round_seed(seed, rounds.round)})
    config = run.config.model_copy(update={"training": settings})
    drawn = run.instances_of_round(rounds.round)
    labelled = strategies.labels.label(drawn, tree=rounds.tree, estimator=estimator)
    plan = None
    if run.work is not None:
        directory = run.work.directory / f"round-{rounds.round}"
        plan = CheckpointPlan(directory, identity, resume=run.work.resume, minutes=settings.schedule.checkpoint_minutes)
    users = sample_users(run.split.validation, config=run.config, seed=seed)
    tower = None
    if run.encoder is not None and rounds.tree.num_items > MAX_SCANNED_ITEMS:
        tower = LazyTower(partial(build_tower, run, run.encoder, rounds.tree))
    trainer = Trainer(
        TREE_MODEL,
        build_learner(score, config=config, negatives=strategies.negatives),
        labelled,
        schedule=model_schedule(settings, num_instances=len(drawn)),
        validate=model_validation(score, run.dataset, users, config=run.config, tower=tower),
        plan=plan,
        listen=run.listen,
        should_stop=run.should_stop,
    )
    progress = run.backend.train(trainer)
    labels: dict[str, Any] = {}
    if isinstance(labelled, LabelledInstances):
        mean_labels = [round(float(label), 4) for label in labelled.mean_labels()]
        labels = {"mean_labels": mean_labels, "labels_seconds": labelled.seconds}
    return {
        "round": rounds.round,
        "steps": progress.step,
        "best_step": progress.best_step,
        "validation": progress.best_validation(),
        "validations": progress.validations,
        **labels,
        "seconds": round(progress.seconds - labels.get("labels_seconds", 0.0), 1),
    }


def _relearn(run: FitRun, placement: Placement, score: Score, rounds: Rounds) -> Relearned:
    """Reassign the items by the score and the targets of the round that was just finished."""
    return placement.place(
        rounds.tree,
        run.instances_of_round(rounds.round - 1),
        add_scores=build_candidate_scores(score),
        score=run.backend.score_candidates,
        on_step=run.stop_while("learning the tree"),
    )
