"""Random numbers as a function of (seed, purpose, step): a resumed run draws the same ones."""

from typing import Literal

import numpy as np
import torch

from beamtree.types import Int64Array

Purpose = Literal[
    "order",
    "negatives",
    "dropout",
    "validation",
    "leaves",
    "weights",
    "estimator",
    "targets",
    "item vectors",
    "guide",
    "newest",
    "update",
    "new targets",
    "subtree",
    "no history",
]

_STREAM: dict[Purpose, int] = {
    "order": 1,
    "negatives": 2,
    "dropout": 3,
    "validation": 4,
    "leaves": 5,
    "weights": 6,
    "estimator": 7,
    "targets": 8,
    "item vectors": 9,
    "guide": 10,
    "newest": 11,
    "update": 12,
    "new targets": 13,
    "subtree": 14,
    "no history": 15,
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


def draws_below(limits: Int64Array, *, numbers: Int64Array, seed: int, purpose: Purpose, step: int = 0) -> Int64Array:
    """One draw from 0 to limit - 1 for each number: the same for the same number, whichever others are asked for.

    limits, numbers: same shape, limits at least 1. Bits are mixed as SplitMix64 mixes its counter.
    """
    bits = np.uint64(seed_for(seed, purpose, step)) + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return (bits % limits.astype(np.uint64)).astype(np.int64)
