"""The weights of a torch module as arrays by name, as in checkpoints and artefacts."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from beamtree.training.checkpoint import Arrays
from beamtree.types import AnyArray


def module_arrays(module: nn.Module) -> Arrays:
    """All weights and statistics by name, sharing memory with the module where it lives on the CPU."""
    return {name: tensor.detach().cpu().numpy() for name, tensor in module.state_dict().items()}


def load_module_arrays(module: nn.Module, arrays: Mapping[str, AnyArray]) -> None:
    """Copy weights into a module of the same sizes."""
    module.load_state_dict({name: torch.from_numpy(np.asarray(array)) for name, array in arrays.items()})
