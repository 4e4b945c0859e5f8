"""Learning with the compiled kernels: drawing, scoring, loss and gradients in a single call on the CPU."""

from collections.abc import Mapping

import torch
from torch import Tensor

from beamtree.config import TrainingSettings
from beamtree.errors import InputError
from beamtree.model.attention import Attention
from beamtree.model.score import ATTENTION, Score, attention_alone
from beamtree.native.attention import AttentionArrays
from beamtree.native.network import Network
from beamtree.native.training import Dropout, Negatives, learn_batch
from beamtree.training.gradients import Gradients, RowGradient
from beamtree.training.history_dropout import without_some_histories
from beamtree.training.instances import Batch
from beamtree.training.optimiser import ScoreOptimiser
from beamtree.training.randomness import numpy_generator, seed_for
from beamtree.training.rows import NativeRowAdam
from beamtree.training.worker_threads import one_torch_thread
from beamtree.types import AnyArray


def attention_arrays(attention: Attention) -> AttentionArrays:
    """Attention as the kernels read it: the tables where they lie, the small weights packed as they are now."""
    settings = attention.settings
    network = Network.pack(
        attention.state_dict(), windows=settings.windows, normalisation=settings.network.normalisation
    )
    return AttentionArrays(network, attention.node_table, attention.item_table)


class NativeLearner:
    """Learns attention alone, with normalisations local to a row; torch keeps the Adam of the small weights."""

    def __init__(self, score: Score, *, negatives: Negatives, settings: TrainingSettings) -> None:
        attention = attention_alone(score)
        if attention is None or attention.settings.network.normalisation == "batch":
            raise InputError(
                "Expected a score of attention alone, without batch normalisation, got the parts "
                f"{', '.join(score.parts)}. Learn it in torch (TorchLearner)."
            )
        self.score = score.eval()
        self._attention = attention
        self._first_level = score.learned_levels()[0]
        self._negatives = negatives
        self._settings = settings
        self._optimiser = ScoreOptimiser(score, settings=settings, row_adam=NativeRowAdam)

    def gradients(self, batch: Batch, *, step: int) -> Gradients:
        """The loss, the mean over instances and learned levels, and its gradients."""
        seed, settings = self._settings.seed, self._attention.settings
        batch = without_some_histories(batch, self.score, generator=numpy_generator(seed, "no history", step))
        offset = self._attention.offset
        with one_torch_thread():
            offsets = None if offset is None else offset.of_requests(batch.requests)
        found = learn_batch(
            attention_arrays(self._attention),
            self._attention.tree,
            histories=batch.histories.latest(settings.attention_history),
            targets=batch.targets,
            negatives=self._negatives,
            seed=seed_for(seed, "negatives", step),
            weights=batch.counted_levels(self._attention.tree.height),
            dropout=Dropout(settings.network.dropout, seed_for(seed, "dropout", step)),
            first_level=self._first_level,
            layer_offsets=None if offsets is None else offsets.detach().numpy(),
        )
        prefix = f"{ATTENTION}/"
        dense = {
            f"{prefix}{name}": torch.from_numpy(gradient).view_as(self._attention.get_parameter(name))
            for name, gradient in found.weights.items()
        }
        if offset is not None:
            learned = {f"{prefix}offset.{name}": weight for name, weight in offset.named_parameters()}
            dense |= _gradients(learned, offsets, of_offsets=found.layer_offsets)
        tables = {f"{prefix}node_table": found.nodes, f"{prefix}item_table": found.items}
        rows = {
            name: RowGradient(torch.from_numpy(touched.rows), torch.from_numpy(touched.values))
            for name, touched in tables.items()
            if len(touched.rows)
        }
        return Gradients(found.loss, dense, rows)

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        """Update the weights; DivergedError, and no update, where a gradient is not finite."""
        with one_torch_thread():
            self._optimiser.step(gradients, learning_rate=learning_rate, step=step)

    def model_arrays(self) -> dict[str, AnyArray]:
        """All weights by name, sharing memory with the score."""
        return self.score.arrays()

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the weights that `model_arrays` gave into the score."""
        self.score.load_arrays(arrays)

    def optimiser_arrays(self) -> dict[str, AnyArray]:
        """The optimiser's state, for a checkpoint."""
        return self._optimiser.arrays()

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        self._optimiser.restore(arrays)


def _gradients(
    weights: Mapping[str, Tensor], offsets: Tensor | None, *, of_offsets: AnyArray | None
) -> dict[str, Tensor]:
    """Gradients of the tables of features, by name, from those of the offsets (instances, width) that they gave.

    Zero where the instances had none.
    """
    if offsets is None or of_offsets is None:
        return {name: torch.zeros_like(weight) for name, weight in weights.items()}
    with one_torch_thread():
        found = torch.autograd.grad(
            offsets, list(weights.values()), torch.from_numpy(of_offsets), materialize_grads=True, allow_unused=True
        )
    return dict(zip(weights, found, strict=True))
