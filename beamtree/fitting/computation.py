"""Who computes: the kernels where they were compiled and know the model, else torch, on a GPU where asked to."""

import logging

import torch

from beamtree import native
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.model.preference import PreferenceModel
from beamtree.training.candidate_scores import native_candidate_scores, torch_candidate_scores
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import NegativeSampler, UniformNegatives, negatives_per_level
from beamtree.training.relearn import AddScores
from beamtree.training.tree_negatives import TreeNegatives
from beamtree.tree.item_tree import ItemTree

log = logging.getLogger(__name__)


def learning_device(config: Config) -> torch.device:
    """Where the model lives while it learns; InputError where a GPU is asked for and torch finds none."""
    chosen = config.training.device
    has_gpu = torch.cuda.is_available()
    if chosen == "cuda" and not has_gpu:
        raise InputError(
            "training.device = 'cuda', but torch finds no GPU here. Install a CUDA build of torch and the driver, or "
            "take training.device=cpu; `beamtree doctor` shows what is active."
        )
    return torch.device("cuda" if has_gpu and chosen != "cpu" else "cpu")


def build_learner(model: PreferenceModel, tree: ItemTree, *, config: Config) -> Learner:
    """The fastest way of learning this model here."""
    settings = config.training
    counts = negatives_per_level(tree, negatives=settings.negatives, depth_slope=settings.depth_slope)
    if _kernels_know(model, config):
        from beamtree.native.training import Negatives
        from beamtree.training.native_learner import NativeLearner

        drawn = Negatives(
            counts,
            sampler="uniform" if settings.method == "dtr-u" else "top_down",
            start=settings.path_start,
            correct_positive=settings.path_correction == "negatives",
            with_dropout=settings.path_mode == "training",
        )
        return NativeLearner(model, tree, negatives=drawn, settings=settings, model_settings=config.model)
    if not native.is_available() and model.node_table.device.type == "cpu":
        log.warning(
            "The kernels were not compiled, so training runs in torch, many times slower. Install a C++ compiler and "
            "install beamtree again; `beamtree doctor` shows what is active."
        )
    sampler: NegativeSampler = UniformNegatives(tree, counts=counts)
    if settings.method != "dtr-u":
        sampler = TreeNegatives(
            model,
            tree,
            count=settings.negatives,
            start=settings.path_start,
            correction=settings.path_correction,
            mode=settings.path_mode,
        )
    return TorchLearner(model, tree, negatives=sampler, settings=settings)


def build_candidate_scores(model: PreferenceModel, tree: ItemTree, *, config: Config) -> AddScores:
    """The fastest way of scoring where items could stand, for learning the tree anew."""
    if _kernels_know(model, config):
        return native_candidate_scores(model, tree, settings=config.model)
    return torch_candidate_scores(model.eval(), tree)


def _kernels_know(model: PreferenceModel, config: Config) -> bool:
    """Whether the kernels can learn this model: batch statistics need a pass of their own and stay in torch."""
    return native.is_available() and model.node_table.device.type == "cpu" and config.model.normalisation != "batch"
