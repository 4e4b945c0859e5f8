import numpy as np
import torch

from beamtree.training.randomness import numpy_generator, seed_for, torch_generator


def test_seeds_are_a_function_of_seed_purpose_and_step() -> None:
    seeds = {
        (seed, purpose, step): seed_for(seed, purpose, step)
        for seed in (0, 1)
        for purpose in ("order", "negatives", "dropout", "validation", "leaves", "weights")
        for step in (0, 1, 2)
    }
    assert len(set(seeds.values())) == len(seeds) == 36
    assert all(0 <= seed < 2**63 for seed in seeds.values())
    assert seed_for(1, "order", 2) == seeds[1, "order", 2]


def test_seeds_do_not_change_between_versions() -> None:
    """A checkpoint is only as good as the numbers that follow it."""
    assert seed_for(0, "order") == 5769891174451087230
    assert seed_for(5, "dropout", 77) == 318125555311715110


def test_generators_start_from_their_seed() -> None:
    first, again = (numpy_generator(7, "order", 3).random(5) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    cpu = torch.device("cpu")
    left, right = (torch.rand(5, generator=torch_generator(7, "dropout", 3, device=cpu)) for _ in range(2))
    assert torch.equal(left, right)
    assert not torch.equal(left, torch.rand(5, generator=torch_generator(7, "dropout", 4, device=cpu)))
