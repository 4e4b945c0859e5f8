"""The full and the sampled softmax over items, for item vectors and an encoder that are trained together."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from beamtree.model.proposal import Proposal
from beamtree.model.softmax_loss import sampled_softmax_loss, softmax_loss
from beamtree.types import NOTHING, AnyArray, Float32Array, Int32Array, Int64Array


class WeighedTargets(NamedTuple):
    """Targets (rows, targets), -1 = none, that do not share their rows evenly; shares: (rows, targets), 0 for none."""

    items: Int32Array
    shares: Float32Array


def item_softmax_loss(
    items: Tensor,
    inputs: Int32Array,
    targets: Int32Array | WeighedTargets,
    *,
    encode: Callable[[Tensor], Tensor],
    negatives: int | None,
    proposal: Proposal,
    generator: torch.Generator,
    left_out: Callable[[Tensor], Tensor] | None = None,
    content: Callable[[Tensor | None], Tensor] | None = None,
) -> Tensor:
    """Mean over rows of the cross-entropy of the targets over all items, or over a sample.

    items: (items, width), read by rows where a sample is drawn; inputs: history items of any shape, -1 = none; targets:
    (rows, targets), which share the row evenly, unless they are weighed, -1 = none, except the first; a row whose first
    is none has a loss of 0. encode: from vectors (*inputs, width) to
    what is expected (rows, width). left_out: from the inputs to items (rows, some) that a row does not compete with.
    proposal: where a sample is drawn from; generator: on the device of the items. content: what is added to the vectors
    of items (n,), or of all.
    """
    device = items.device
    wanted, shares = targets if isinstance(targets, WeighedTargets) else (targets, None)
    rows_in_all, has_target = len(wanted), wanted[:, 0] != NOTHING
    asked = None if has_target.all() else torch.from_numpy(np.flatnonzero(has_target)).to(device)
    counted = None if shares is None else torch.from_numpy(shares[has_target]).to(device)

    def of_asked(whole: Tensor) -> Tensor:
        return whole if asked is None else whole[asked]

    if negatives is None:
        read, labels = _moved(inputs, wanted, device=device)
        table = items if content is None else items + content(None)
        total = softmax_loss(
            of_asked(encode(look_up(read, table))),
            table,
            of_asked(labels),
            left_out=None if left_out is None else of_asked(left_out(read)),
            shares=counted,
        )
        return total / rows_in_all
    drawn, stand_for = proposal.draw(negatives, generator=generator)
    # Of a large table a step meets few rows: only these are looked up, once, and have a gradient each.
    met, places = _renumbered(inputs, wanted, drawn.numpy(), count=len(items))
    rows, read, labels, sample = _moved(met, *places, device=device)
    known = functional.embedding(rows, items, sparse=True)
    if content is not None:
        known = known + content(rows)
    total = sampled_softmax_loss(
        of_asked(encode(look_up(read, known))),
        known,
        of_asked(labels),
        sample=sample,
        stand_for=stand_for.to(device),
        left_out=None if left_out is None else of_asked(left_out(read)),
        shares=counted,
    )
    return total / rows_in_all


def look_up(histories: Tensor, items: Tensor) -> Tensor:
    """Vectors (*histories, width) of items; that of -1 means nothing."""
    # Unlike indexing, embedding adds the gradients of repeated items in a fixed order.
    return functional.embedding(histories.clamp(min=0), items)


def _moved(*arrays: AnyArray, device: torch.device) -> list[Tensor]:
    """Whole numbers on a device."""
    return [torch.from_numpy(array).to(device, torch.int64) for array in arrays]


def _renumbered(*parts: AnyArray, count: int) -> tuple[Int64Array, list[Int32Array]]:
    """The distinct of `count` items in all parts, ascending, and the parts with their places among these; -1 stays."""
    is_met = np.zeros(count + 1, dtype=np.bool_)  # the last one is where -1 goes
    for part in parts:
        is_met[part] = True
    met = np.flatnonzero(is_met[:-1])
    places = np.empty(count + 1, dtype=np.int32)
    places[met] = np.arange(len(met))
    places[-1] = NOTHING
    return met, [places[part] for part in parts]
