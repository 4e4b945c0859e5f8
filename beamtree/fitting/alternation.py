"""Rounds: learn the model over the tree, place the items anew with that model, and so on; the best round is kept."""

import time
from functools import partial
from typing import Any

from beamtree.config import TrainingSettings
from beamtree.fitting.computation import build_candidate_scores, build_learner, learning_device
from beamtree.fitting.planting import plant_first_tree
from beamtree.fitting.run import FitRun
from beamtree.fitting.tower import build_tower
from beamtree.fitting.validation import LARGEST_SCAN, MadeOnce, model_validation, sample_users
from beamtree.model.estimator import Estimator
from beamtree.model.score import Score, build_score
from beamtree.training.checkpoint import Identity
from beamtree.training.events import TREE_MODEL, TreeRelearned
from beamtree.training.instances import TrainingInstances
from beamtree.training.labelled import RectifiedInstances
from beamtree.training.randomness import seed_for
from beamtree.training.relearn import Relearned, relearn_tree
from beamtree.training.rounds import Rounds, forget_rounds, load_rounds, round_seed, save_rounds
from beamtree.training.schedule import model_schedule
from beamtree.training.soft_labels import SoftInstances
from beamtree.training.trainer import SELECTION_METRIC, CheckpointPlan, Trainer
from beamtree.tree.assign import Assign, assign_balanced, assign_residents_first, by_regret, by_score
from beamtree.tree.auction import assign_by_auction
from beamtree.tree.item_tree import ItemTree

ASSIGNMENTS: dict[str, Assign] = {
    "auction": assign_by_auction,
    "regret": partial(assign_balanced, priority=by_regret),
    "residents": assign_residents_first,
    "score": partial(assign_balanced, priority=by_score),
}


def learn_in_rounds(run: FitRun, estimator: Estimator | None) -> Rounds:
    """All rounds that the settings ask for, or what is left of them. estimator: rectifies the labels, if there is one.

    With a folder for checkpoints, the state between two rounds is kept there, and within a round by the trainer.
    """
    config = run.config
    identity = run.identity
    rounds, score = _begin(run, identity=identity)
    if not run.parts:
        return rounds
    while rounds.round < config.training.rounds:
        report = _learn_round(run, score, rounds, estimator=estimator, identity=identity)
        rounds.finish(score.arrays(), report, score=report["validation"].get(SELECTION_METRIC))
        if rounds.round < config.training.rounds:
            started = time.monotonic()
            relearned = _relearn(run, score, rounds)
            rounds.replant(relearned.tree, moved_rows=config.tree.moved_rows, node_tables=score.node_tables())
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
    """Where the rounds stand in the folder of a resumed run, or before the first one; and the score to learn next."""
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
    """A score over the tree of the round that comes next, with the weights that it starts from."""
    score = _fresh_score(run, rounds.tree)
    score.load_arrays(rounds.weights)
    return score.to(learning_device(run.config))


def _fresh_score(run: FitRun, tree: ItemTree) -> Score:
    return build_score(run.config, tree, seed=seed_for(run.config.training.seed, "weights"), parts=run.parts)


def _keep(run: FitRun, rounds: Rounds, *, identity: Identity) -> None:
    if run.work is not None:
        save_rounds(run.work.directory / "rounds", rounds, identity=identity)


def _learn_round(
    run: FitRun, score: Score, rounds: Rounds, *, estimator: Estimator | None, identity: Identity
) -> dict[str, Any]:
    """Learn the score over the tree of this round; a report of how it went."""
    seed = run.config.training.seed
    settings = run.config.training.model_copy(update={"seed": round_seed(seed, rounds.round)})
    config = run.config.model_copy(update={"training": settings})
    drawn = run.instances_of_round(rounds.round)
    labelled = None if estimator is None else _labelled(drawn, estimator, tree=rounds.tree, settings=settings)
    plan = None
    if run.work is not None:
        directory = run.work.directory / f"round-{rounds.round}"
        plan = CheckpointPlan(directory, identity, resume=run.work.resume, minutes=settings.checkpoint_minutes)
    users = sample_users(run.split.validation, config=run.config, seed=seed)
    tower = None
    if run.encoder is not None and rounds.tree.num_items > LARGEST_SCAN:
        tower = MadeOnce(partial(build_tower, run, run.encoder, rounds.tree))
    trainer = Trainer(
        TREE_MODEL,
        build_learner(score, config=config),
        drawn if labelled is None else labelled,
        schedule=model_schedule(settings, num_instances=len(drawn)),
        validate=model_validation(score, run.dataset, users, config=run.config, tower=tower),
        plan=plan,
        listen=run.listen,
        should_stop=run.should_stop,
    )
    progress = run.backend.train(trainer)
    labels: dict[str, Any] = {}
    if labelled is not None:
        mean_labels = [round(float(label), 4) for label in labelled.mean_labels()]
        labels = {"mean_labels": mean_labels, "labels_seconds": labelled.seconds}
    return {
        "round": rounds.round,
        "steps": progress.step,
        "best_step": progress.best_step,
        "validation": progress.best_validation(),
        "validations": progress.validations,
        **labels,
        "seconds": round(progress.seconds - (0.0 if labelled is None else labelled.seconds), 1),
    }


def _labelled(
    instances: TrainingInstances, estimator: Estimator, *, tree: ItemTree, settings: TrainingSettings
) -> RectifiedInstances | SoftInstances:
    """The instances with labels that the estimator rectifies, hard or soft."""
    if settings.rectification == "soft":
        items, share = settings.soft_items, settings.soft_share
        return SoftInstances(instances, estimator=estimator, tree=tree, items=items, share=share)
    return RectifiedInstances(instances, estimator=estimator, tree=tree, rectification=settings.rectification)


def _relearn(run: FitRun, score: Score, rounds: Rounds) -> Relearned:
    """Place the items anew by the round that was just finished: its tree, and the targets it learned from."""
    settings = run.config.tree
    return relearn_tree(
        rounds.tree,
        run.instances_of_round(rounds.round - 1),
        add_scores=build_candidate_scores(score),
        stride=settings.stride,
        instances_per_item=settings.instances_per_item,
        assign=ASSIGNMENTS[settings.assignment],
        score=run.backend.score_candidates,
        on_step=run.stop_while("learning the tree"),
    )
