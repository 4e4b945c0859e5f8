"""Random numbers as a function of (seed, purpose, step): a resumed run draws what it would have drawn."""

from typing import Literal

import numpy as np
import torch

Purpose = Literal["order", "negatives", "dropout", "validation", "leaves", "weights", "estimator"]

_STREAM: dict[Purpose, int] = {
    "order": 1,
    "negatives": 2,
    "dropout": 3,
    "validation": 4,
    "leaves": 5,
    "weights": 6,
    "estimator": 7,
}


def seed_for(seed: int, purpose: Purpose, step: int = 0) -> int:
    """A 63-bit seed of its own for each purpose and step."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAM[purpose], step))
    return int(sequence.generate_state(1, np.uint64)[0] >> np.uint64(1))


def numpy_generator(seed: int, purpose: Purpose, step: int = 0) -> np.random.Generator:
    """NumPy's generator for a purpose at a step."""
    return np.random.default_rng(seed_for(seed, purpose, step))


def torch_generator(seed: int, purpose: Purpose, step: int = 0, *, device: torch.device) -> torch.Generator:
    """Torch's generator for a purpose at a step, on a device."""
    return torch.Generator(device).manual_seed(seed_for(seed, purpose, step))
