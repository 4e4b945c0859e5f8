"""The choice between the compiled kernels and torch, and of the device: the fastest that supports a score."""

import logging

import torch

from beamtree import native
from beamtree.config import Config
from beamtree.errors import InputError
from beamtree.model.attention import Attention
from beamtree.model.score import Score, attention_alone
from beamtree.training.candidate_scores import native_candidate_scores, torch_candidate_scores
from beamtree.training.learner import Learner, TorchLearner
from beamtree.training.negatives import NegativeSampler
from beamtree.training.relearn import AddScores
from beamtree.training.strategies import Strategies

log = logging.getLogger(__name__)


def learning_device(config: Config) -> torch.device:
    """The device to train on; InputError if the settings require a GPU and torch finds none."""
    chosen = config.training.device
    has_gpu = torch.cuda.is_available()
    if chosen == "cuda" and not has_gpu:
        raise InputError(
            "training.device = 'cuda', but torch finds no GPU here. Install a CUDA build of torch and the driver, or "
            "take training.device=cpu; `beamtree doctor` shows what is active."
        )
    return torch.device("cuda" if has_gpu and chosen != "cpu" else "cpu")


def build_learner(score: Score, *, config: Config, negatives: NegativeSampler | None = None) -> Learner:
    """The fastest learner that supports this score. negatives: None = as the settings choose."""
    sampler = Strategies.of(config).negatives if negatives is None else negatives
    if kernels_attention(score) is not None:
        from beamtree.training.native_learner import NativeLearner

        drawn = sampler.in_kernels(score.tree)
        if drawn is not None:
            return NativeLearner(score, negatives=drawn, settings=config.training)
        log.warning("The kernels do not know negatives %s, so training runs in torch, many times slower.", sampler.name)
    elif score.device.type == "cpu":
        _warn_of_torch(score)
    return TorchLearner(score, draws=sampler.draws(score), settings=config.training)


def build_candidate_scores(score: Score) -> AddScores:
    """The fastest scorer of candidate nodes, for relearning the tree."""
    attention = kernels_attention(score)
    return torch_candidate_scores(score) if attention is None else native_candidate_scores(attention)


def kernels_attention(score: Score) -> Attention | None:
    """The attention part if the kernels can train the whole score, else None.

    They train attention alone, on all levels or the last ones, on the CPU. Batch normalisation is trained in torch.
    """
    attention = attention_alone(score)
    if attention is None or attention.settings.network.normalisation == "batch":
        return None
    return attention if native.is_available() and score.device.type == "cpu" else None


def _warn_of_torch(score: Score) -> None:
    unsupported = [name for name, part in score.parts.items() if not isinstance(part, Attention)]
    if unsupported:
        log.warning(
            "The kernels do not know the part %s of the score, so training runs in torch, many times slower.",
            ", ".join(unsupported),
        )
    elif not native.is_available():
        log.warning(
            "The kernels were not compiled, so training runs in torch, many times slower. Install a C++ compiler and "
            "install beamtree again; `beamtree doctor` shows what is active."
        )
