"""Learning any torch module with AdamW: the loss of a batch is a function that is passed in."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from beamtree import native
from beamtree.errors import DivergedError, InputError
from beamtree.training.checkpoint import Arrays
from beamtree.training.gradients import Gradients, RowGradient
from beamtree.training.module_arrays import load_module_arrays, module_arrays
from beamtree.training.randomness import torch_generator
from beamtree.training.rows import NativeRowAdam, RowAdam
from beamtree.training.worker_threads import WorkerThreads
from beamtree.types import AnyArray

CLIP_NORM = 5.0
WEIGHT_DECAY = 1e-4

ModuleT = TypeVar("ModuleT", bound=nn.Module)


class BatchPart(NamedTuple):
    """A part of a batch, and its share of the batch's loss."""

    batch: Any
    share: float


def undivided(batch: Any) -> Sequence[BatchPart]:
    """A batch as its only part."""
    return [BatchPart(batch, 1.0)]


class ModuleLearner(Generic[ModuleT]):
    """A module and its optimiser, in the way of `Learner`.

    loss: from the module, a batch and a generator to a scalar; what it draws, dropout included, it draws from the
    generator, which is on the module's device and seeded by (seed, step). tables: names of parameters that it reads by
    `embedding(..., sparse=True)` alone; of these a step updates the rows that it reads, of all others everything.
    divide: into parts that are learned from side by side, each with cores and a generator of its own; the same parts
    for the same batch.
    """

    def __init__(
        self,
        module: ModuleT,
        *,
        loss: Callable[[ModuleT, Any, torch.Generator], Tensor],
        seed: int,
        tables: Collection[str] = (),
        divide: Callable[[Any], Sequence[BatchPart]] = undivided,
    ) -> None:
        self.module = module.eval()
        self._loss = loss
        self._seed = seed
        self._divide = divide
        self._threads: WorkerThreads | None = None
        self._parameters = dict(module.named_parameters())
        self._dense = {name: weight for name, weight in self._parameters.items() if name not in tables}
        self._optimiser = torch.optim.AdamW(self._dense.values(), weight_decay=WEIGHT_DECAY, fused=True)
        self._row_adam = {
            name: _row_adam_of(table).for_table(table, decoupled_decay=True, weight_decay=WEIGHT_DECAY)
            for name, table in ((name, self._parameters[name].detach()) for name in tables)
        }

    def gradients(self, batch: Any, *, step: int) -> Gradients:
        """Loss and gradients of a batch; `step` counts from 0. The module is left in evaluation mode.

        InputError where a table was not read by rows.
        """
        parts = self._divide(batch)
        numbered = [(part.batch, step * len(parts) + number) for number, part in enumerate(parts)]
        self.module.train()
        if len(parts) == 1:
            found = self._of_part(numbered[0])
        else:
            if self._threads is None or self._threads.count < len(parts):
                self._threads = WorkerThreads(len(parts))
            shares = [part.share for part in parts]
            each = self._threads.map(self._of_part, numbered)
            found = self._threads.run(lambda: Gradients.sum(each, weights=shares))
        self.module.eval()
        return found

    def _of_part(self, numbered: tuple[Any, int]) -> Gradients:
        """Of a part of a batch, and the number that its generator is seeded by."""
        batch, number = numbered
        device = next(self.module.parameters()).device
        loss = self._loss(self.module, batch, torch_generator(self._seed, "dropout", number, device=device))
        found = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True, materialize_grads=True)
        by_name = dict(zip(self._parameters, found, strict=True))
        whole = [name for name in self._row_adam if not by_name[name].is_sparse]
        if whole:
            raise InputError(
                f"Expected a loss that reads the tables {', '.join(whole)} with embedding(..., sparse=True) alone, but "
                "their gradients are dense. Read them so, or do not name them as tables."
            )
        return Gradients(
            float(loss.detach()),
            {name: by_name[name] for name in self._dense},
            {name: _by_rows(by_name[name]) for name in self._row_adam},
        )

    def apply(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        """One update, which clips the gradients in place. DivergedError, and no update, where one is not finite."""
        if self._threads is None:
            self._update(gradients, step=step, learning_rate=learning_rate)
        else:
            self._threads.run(lambda: self._update(gradients, step=step, learning_rate=learning_rate))

    def _update(self, gradients: Gradients, *, step: int, learning_rate: float) -> None:
        for name, parameter in self._dense.items():
            parameter.grad = gradients.dense[name]
        norm = get_total_norm([*gradients.dense.values(), *(touched.values for touched in gradients.rows.values())])
        if not torch.isfinite(norm):
            raise DivergedError(
                f"The gradients are not finite at step {step + 1}, so the step was not taken. Start again with a lower "
                "learning rate."
            )
        clip_grads_with_norm_(self._dense.values(), CLIP_NORM, norm)
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        self._optimiser.step()
        self._optimiser.zero_grad()
        for name, touched in gradients.rows.items():
            self._row_adam[name].step(
                self._parameters[name].detach(),
                rows=touched.rows,
                gradients=touched.values.mul_((CLIP_NORM / (norm + 1e-6)).clamp(max=1.0)),
                learning_rate=learning_rate,
                step=step + 1,
            )

    def model_arrays(self) -> Arrays:
        """All weights by name, sharing memory with the module where it lives on the CPU."""
        return module_arrays(self.module)

    def load_model_arrays(self, arrays: Mapping[str, AnyArray]) -> None:
        """Copy the weights that `model_arrays` gave into the module."""
        load_module_arrays(self.module, arrays)

    def optimiser_arrays(self) -> Arrays:
        """The optimiser's state: `NAME.MOMENT` for tables, `NUMBER.MOMENT` for all others, once they have one."""
        arrays: Arrays = {}
        for name, adam in self._row_adam.items():
            arrays[f"{name}.first_moment"] = adam.first_moment.cpu().numpy()
            arrays[f"{name}.second_moment"] = adam.second_moment.cpu().numpy()
        for number, moments in self._optimiser.state_dict()["state"].items():
            arrays |= {f"{number}.{moment}": tensor.cpu().numpy() for moment, tensor in moments.items()}
        return arrays

    def restore_optimiser(self, arrays: Mapping[str, AnyArray]) -> None:
        """Take up the state that `optimiser_arrays` gave."""
        state: dict[int, dict[str, Tensor]] = {}
        for key, array in arrays.items():
            name, _, moment = key.rpartition(".")
            tensor = torch.from_numpy(np.array(array))
            if name in self._row_adam:
                getattr(self._row_adam[name], moment).copy_(tensor)
            else:
                state.setdefault(int(name), {})[moment] = tensor
        self._optimiser.load_state_dict({**self._optimiser.state_dict(), "state": state})


def _by_rows(gradient: Tensor) -> RowGradient:
    """The rows of a sparse gradient that are there, each once."""
    summed = gradient.coalesce()
    return RowGradient(summed.indices()[0], summed.values())


def _row_adam_of(table: Tensor) -> type[RowAdam]:
    """The kernels' where they can reach the table, else torch's."""
    in_kernels = native.is_available() and table.device.type == "cpu" and table.dtype == torch.float32
    return NativeRowAdam if in_kernels else RowAdam
