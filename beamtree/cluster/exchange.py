"""Adding the gradients of all workers up, in two collectives per step.

Small weights are summed in one all-reduce of a flat buffer. Of tables, each worker sends the rows that its part of the
batch touched, in one all-gather; they are merged in the order of the ranks, so that the same number of workers gives
the same bytes.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from beamtree.errors import InputError
from beamtree.training.gradients import Gradients, RowGradient

T = TypeVar("T")


@dataclass(frozen=True)
class Notes:
    """What workers agree on after every step: the clock of the first one, and whether any was asked to stop."""

    seconds: float = 0.0
    is_stopping: bool = False


class Exchange:
    """The collectives of one worker among others; the process group of torch.distributed has been set up before.

    bytes_sent: what this worker has put on the network so far, as the algorithms of a ring count it.
    """

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.workers = dist.get_world_size()
        self.bytes_sent = 0
        self._received = torch.empty(0, dtype=torch.int32)

    def sum(self, gradients: Gradients, *, notes: Notes, table_widths: Mapping[str, int]) -> tuple[Gradients, Notes]:
        """The sum of the gradients of all workers, whose shares of the batch are part of them already.

        table_widths: the tables of the learner, the same on every worker, whether or not a batch touches them. Running
        statistics are summed too, counts of batches apart, which are the same everywhere.
        """
        unknown = gradients.rows.keys() - table_widths.keys()
        if unknown:
            raise InputError(f"Expected gradients of rows of {', '.join(table_widths)}, got {', '.join(unknown)}.")
        statistics = {name: value for name, value in gradients.statistics.items() if value.is_floating_point()}
        small = [*gradients.dense.values(), *statistics.values()]
        names = sorted(table_widths)
        counts = torch.zeros(self.workers, len(names))
        for column, name in enumerate(names):
            counts[self.rank, column] = len(gradients.rows[name].rows) if name in gradients.rows else 0
        is_first = self.rank == 0
        told = torch.tensor([gradients.loss, notes.seconds if is_first else 0.0, float(notes.is_stopping)])
        device = next(iter(small)).device if small else torch.device("cpu")
        flat = torch.cat([*(tensor.flatten() for tensor in small), told.to(device), counts.flatten().to(device)])
        dist.all_reduce(flat)
        self.bytes_sent += 2 * (self.workers - 1) * flat.nbytes // self.workers
        *summed, told, counts = _cut(flat, [*small, told, counts])
        loss, seconds, stopping = told.tolist()
        dense = dict(zip(gradients.dense, summed, strict=False))
        averaged = dict(zip(statistics, summed[len(dense) :], strict=True))
        rows = self._gathered(gradients, counts.long().tolist(), names=names, widths=table_widths)
        total = Gradients(loss, dense, rows, {**gradients.statistics, **averaged})
        return total, Notes(seconds, is_stopping=stopping > 0)

    def _gathered(
        self, gradients: Gradients, counts: list[list[int]], *, names: Sequence[str], widths: Mapping[str, int]
    ) -> dict[str, RowGradient]:
        """The rows that any worker touched, each once. counts: of each worker and table."""
        if not any(any(of_worker) for of_worker in counts):
            return {}
        sizes = [sum(count * (1 + widths[name]) for count, name in zip(of, names, strict=True)) for of in counts]
        device = next(iter(gradients.rows.values())).values.device if gradients.rows else torch.device("cpu")
        sent = torch.empty(max(sizes), dtype=torch.int32, device=device)
        pieces = [tensor for name in names if name in gradients.rows for tensor in _as_words(gradients.rows[name])]
        if pieces:
            torch.cat(pieces, out=sent[: sizes[self.rank]])
        received = self._buffer(self.workers * len(sent), device).view(self.workers, len(sent))
        dist.all_gather(list(received.unbind()), sent)
        self.bytes_sent += (self.workers - 1) * sent.nbytes
        found: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in names}
        for buffer, of_worker in zip(received, counts, strict=True):
            begin = 0
            for name, count in zip(names, of_worker, strict=True):
                middle = begin + count
                end = middle + count * widths[name]
                if count:
                    values = buffer[middle:end].view(torch.float32).view(count, widths[name])
                    found[name].append((buffer[begin:middle].long(), values))
                begin = end
        return {
            name: RowGradient.summed(torch.cat([rows for rows, _ in some]), torch.cat([values for _, values in some]))
            for name, some in found.items()
            if some
        }

    def _buffer(self, words: int, device: torch.device) -> Tensor:
        """So many words to receive into; the same memory in every step, because fresh pages cost time."""
        if len(self._received) < words or self._received.device != device:
            self._received = torch.empty(words + words // 4, dtype=torch.int32, device=device)
        return self._received[:words]

    def from_first(self, value: T) -> T:
        """What the first worker gives, for all of them."""
        box = [value]
        dist.broadcast_object_list(box)
        return box[0]

    def from_all(self, value: T) -> list[T]:
        """What each worker gives, in the order of the ranks, for all of them."""
        boxes: list[Any] = [None] * self.workers
        dist.all_gather_object(boxes, value)
        return boxes


def digest_of(arrays: Mapping[str, Any]) -> int:
    """A number that differs where a bit of the arrays does, but for a chance of one in 2^64; they are read once."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(arrays):
        digest.update(np.ascontiguousarray(arrays[name]).data)
    return int.from_bytes(digest.digest(), "little")


def _as_words(touched: RowGradient) -> list[Tensor]:
    """Row numbers and gradients as flat words of 32 bits: bytes would be copied one by one."""
    return [touched.rows.to(torch.int32), touched.values.contiguous().view(-1).view(torch.int32)]


def _cut(flat: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """A flat buffer as tensors of given shapes, one after the other, which share its memory."""
    parts = flat.split([tensor.numel() for tensor in like])
    return [part.view(tensor.shape).to(tensor.dtype) for part, tensor in zip(parts, like, strict=True)]
