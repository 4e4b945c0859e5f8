"""The smallest learner: one weight per feature, least squares, gradient descent with momentum; and its instances."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch

from beamtree.training.gradients import Gradients
from beamtree.types import AnyArray, Float64Array, Int64Array

TRUTH = np.array([1.0, -2.0, 0.5])


class Pairs(NamedTuple):
    features: Float64Array
    targets: Float64Array


class LinearInstances:
    """Forty noiseless points of the plane that TRUTH describes; remembers how often it was asked."""

    def __init__(self) -> None:
        self.features = np.random.default_rng(0).normal(size=(40, 3))
        self.batches = 0

    def __len__(self) -> int:
        return len(self.features)

    def batch(self, instances: Int64Array, *, epoch: int) -> Pairs:
        self.batches += 1
        features = self.features[instances] * (1 + 0.01 * epoch)
        return Pairs(features, features @ TRUTH)

    def state(self) -> dict[str, AnyArray]:
        return {"batches": np.array(self.batches)}

    def restore(self, state: Mapping[str, AnyArray]) -> None:
        self.batches = int(state["batches"])


class LinearLearner:
    def __init__(self) -> None:
        self.weights = np.zeros(3)
        self.momentum = np.zeros(3)

    def gradients(self, batch: Pairs, *, step: int) -> Gradients:  # noqa: ARG002
        error = batch.features @ self.weights - batch.targets
        gradient = 2.0 * batch.features.T @ error / len(error)
        return Gradients(float((error**2).mean()), {"weights": torch.from_numpy(gradient)})

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:  # noqa: ARG002
        self.momentum[:] = 0.5 * self.momentum + gradients.dense["weights"].numpy()
        self.weights -= learning_rate * self.momentum

    def model_arrays(self) -> dict[str, AnyArray]:
        return {"weights": self.weights}

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        self.weights[:] = arrays["weights"]

    def optimiser_arrays(self) -> dict[str, AnyArray]:
        return {"momentum": self.momentum}

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        self.momentum[:] = arrays["momentum"]
