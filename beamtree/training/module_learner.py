"""Learning any torch module with AdamW: the loss of a batch is a function that is passed in."""

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from beamtree.errors import DivergedError
from beamtree.training.checkpoint import Arrays
from beamtree.training.gradients import Gradients
from beamtree.training.module_arrays import load_module_arrays, module_arrays
from beamtree.training.randomness import seed_for
from beamtree.types import AnyArray

CLIP_NORM = 5.0
WEIGHT_DECAY = 1e-4

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class ModuleLearner(Generic[ModuleT]):
    """A module whose weights are all updated in every step, in the way of `Learner`.

    loss: from the module and a batch to a scalar; what it draws from torch's global generator, dropout included, is a
    function of (seed, step).
    """

    def __init__(self, module: ModuleT, *, loss: Callable[[ModuleT, Any], Tensor], seed: int) -> None:
        self.module = module.eval()
        self._loss = loss
        self._seed = seed
        self._parameters = dict(module.named_parameters())
        self._optimiser = torch.optim.AdamW(self._parameters.values(), weight_decay=WEIGHT_DECAY, fused=True)

    def gradients(self, batch: Any, *, step: int) -> Gradients:
        """Loss and gradients of a batch; `step` counts from 0. The module is left in evaluation mode."""
        devices = {parameter.device for parameter in self._parameters.values()}
        self.module.train()
        with torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"]):
            torch.manual_seed(seed_for(self._seed, "dropout", step))
            loss = self._loss(self.module, batch)
            found = torch.autograd.grad(
                loss, list(self._parameters.values()), allow_unused=True, materialize_grads=True
            )
        self.module.eval()
        return Gradients(float(loss.detach()), dict(zip(self._parameters, found, strict=True)))

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        """One update, which clips the gradients in place. DivergedError, and no update, where one is not finite."""
        for name, parameter in self._parameters.items():
            parameter.grad = gradients.dense[name]
        norm = torch.nn.utils.clip_grad_norm_(self._parameters.values(), CLIP_NORM)
        if not torch.isfinite(norm):
            raise DivergedError(
                f"The gradients are not finite at step {step + 1}, so the step was not taken. Start again with a lower "
                "learning rate."
            )
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._optimiser.step()
        self._optimiser.zero_grad()

    def model_arrays(self) -> Arrays:
        """All weights by name, sharing memory with the module where it lives on the CPU."""
        return module_arrays(self.module)

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the weights that `model_arrays` gave into the module."""
        load_module_arrays(self.module, arrays)

    def optimiser_arrays(self) -> Arrays:
        """The optimiser's state: `NUMBER.MOMENT` for each parameter, nothing before the first step."""
        state = self._optimiser.state_dict()["state"]
        return {
            f"{number}.{name}": tensor.cpu().numpy()
            for number, moments in state.items()
            for name, tensor in moments.items()
        }

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, array in arrays.items():
            number, _, name = key.partition(".")
            state.setdefault(int(number), {})[name] = torch.from_numpy(np.array(array))
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})
