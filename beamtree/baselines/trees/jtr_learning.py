"""Training JTR: nodes and encoder over fixed buckets, then the buckets, alternately; the best round is kept."""

import logging
from collections.abc import Mapping

import numpy as np
import torch

from beamtree.baselines.trees.bucket_tree import BucketTree, cluster, overlapped
from beamtree.baselines.trees.jtr_index import JtrIndex
from beamtree.baselines.trees.jtr_model import JtrModel, LevelwiseLoss
from beamtree.baselines.trees.learning import share_of_time
from beamtree.baselines.trees.node_scores import in_parts
from beamtree.baselines.trees.run import Plan, TreeRun, make_plan, round_settings
from beamtree.evaluation.protocol import evaluate
from beamtree.model.next_item import NextItemModel
from beamtree.training.checkpoint import Arrays, Checkpoint, copied, load_checkpoint, save_checkpoint
from beamtree.training.module_arrays import load_module_arrays, module_arrays
from beamtree.training.module_learner import ModuleLearner
from beamtree.training.randomness import numpy_generator
from beamtree.training.rounds import round_seed
from beamtree.training.schedule import model_schedule
from beamtree.training.trainer import SELECTION_METRIC, Trainer

ROUNDS = 3
QUERIES = 20_000
"""Training histories whose beams decide where the items belong, at most."""
LEARNING_RATE = 1e-3
"""Of an encoder that is trained already."""
KIND = "jtr"

log = logging.getLogger(__name__)


def learn_jtr(
    run: TreeRun, encoder: NextItemModel, *, branching: int, max_bucket: int, negatives: int, beam_width: int
) -> JtrIndex:
    """The index of the best round; the encoder is learned on. Kept in the run's folder, and found there again."""
    generator = numpy_generator(run.budget.seed, "leaves")
    tree, centres = cluster(encoder.item_vectors(), branching=branching, max_items=max_bucket, generator=generator)
    model = JtrModel(encoder, centres)
    kept = None
    if run.directory is not None:
        kept = load_checkpoint(run.directory, kind=KIND, identity=run.identity)
    if kept is not None:
        load_module_arrays(model, kept.group("model"))
        return JtrIndex(model, tree.with_leaves(kept.group("tree")["leaves_of_item"]), beam_width)
    best_tree, best, best_score = tree, copied(module_arrays(model)), -1.0
    plan = make_plan(run, _learner(run, model, tree, negatives=negatives), run.instances, max_rounds=ROUNDS)
    for number in range(plan.rounds):
        if number > 0 and run.budget.is_spent:
            break
        validation = _train(
            run, model, tree, plan=plan, round_number=number, negatives=negatives, beam_width=beam_width
        )
        score = validation.get(SELECTION_METRIC, float(number))
        log.info("%s, round %d of %d: %s", run.name, number + 1, plan.rounds, dict(validation))
        if score > best_score:
            best_tree, best, best_score = tree, copied(module_arrays(model)), score
        tree = _replanted(run, JtrIndex(model, tree, beam_width), round_number=number)
    load_module_arrays(model, best)
    _keep(run, best, best_tree)
    return JtrIndex(model, best_tree, beam_width)


def _keep(run: TreeRun, model: Arrays, tree: BucketTree) -> None:
    if run.directory is not None:
        arrays = {"model": model, "tree": {"leaves_of_item": tree.leaves_of_item}}
        save_checkpoint(run.directory, Checkpoint({}, arrays), kind=KIND, identity=run.identity)


def _learner(run: TreeRun, model: JtrModel, tree: BucketTree, *, negatives: int) -> ModuleLearner[JtrModel]:
    return ModuleLearner(model, loss=LevelwiseLoss(tree, negatives=negatives), seed=run.budget.seed, divide=in_parts)


def _train(
    run: TreeRun,
    model: JtrModel,
    tree: BucketTree,
    *,
    plan: Plan,
    round_number: int,
    negatives: int,
    beam_width: int,
) -> Mapping[str, float]:
    """One round over fixed buckets; the best validation, empty without validation users."""
    seed = round_seed(run.budget.seed, round_number)
    settings = round_settings(run, steps=plan.steps, learning_rate=LEARNING_RATE, seed=seed)
    instances = run.instances.with_seed(seed)

    def validate() -> Mapping[str, float]:
        index = JtrIndex(model, tree, beam_width)
        return evaluate(index, run.dataset, run.validation_users, config=run.config, cutoffs=(20,))

    return (
        Trainer(
            run.name,
            _learner(run, model, tree, negatives=negatives),
            instances,
            schedule=model_schedule(settings, num_instances=len(instances)),
            validate=validate if len(run.validation_users) else None,
            plan=None,
            listen=run.budget.listen,
            should_stop=run.budget.should_stop,
            max_seconds=share_of_time(run, 1.0 / (plan.rounds - round_number)),
        )
        .run()
        .best_validation()
    )


@torch.no_grad()
def _replanted(run: TreeRun, index: JtrIndex, *, round_number: int) -> BucketTree:
    """The tree with every item in the buckets that its training histories find most."""
    generator = numpy_generator(run.budget.seed, "order", round_number)
    chosen = np.sort(generator.permutation(len(run.instances))[:QUERIES])
    batch = run.instances.with_one_target().batch(chosen)
    leaves = index.leaves(index.queries(batch.requests))
    return index.tree.with_leaves(overlapped(index.tree, batch.targets[:, 0], leaves))
