"""Two kinds of tensors that must not meet, as on a machine with a GPU: those of the host, and those of the device.

What comes from NumPy or from `.cpu()` is the host's, everything else the device's. Only `.to` and `copy_` bring a
tensor over, and only the host's become NumPy arrays. Tensors that are made without saying where turn up on the meta
device, and do not fit anything.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves

CROSSING = (torch.Tensor.to, torch.Tensor.copy_, torch.gru)
"""What takes tensors of both: a recurrent network is told on the host how many sequences reach each place."""


class HostTensor(torch.Tensor):
    """A tensor of the host."""

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Refuse to work on tensors of both places."""
        given = [leaf for leaf in tree_leaves((args, kwargs or {})) if isinstance(leaf, torch.Tensor)]
        strangers = [tensor for tensor in given if not isinstance(tensor, HostTensor) and tensor.dim() > 0]
        if function in CROSSING:
            plain = [leaf.as_subclass(torch.Tensor) if isinstance(leaf, HostTensor) else leaf for leaf in args]
            return function(*plain, **(kwargs or {}))
        assert not strangers, f"{function.__name__} on tensors of the host and of the device"
        return super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]


@contextmanager
def two_places(monkeypatch: pytest.MonkeyPatch, *, unnamed: str = "meta") -> Iterator[None]:
    """Inside, tensors of the host and of the device are told apart; unnamed: where those go that do not say it."""
    from_numpy, cpu, numpy = torch.from_numpy, torch.Tensor.cpu, torch.Tensor.numpy

    def refuse_numpy(tensor: torch.Tensor) -> Any:
        assert isinstance(tensor, HostTensor), "an array from a tensor of the device, without .cpu()"
        with torch._C.DisableTorchFunction():
            return numpy(tensor)

    with monkeypatch.context() as context:
        context.setattr(torch, "from_numpy", lambda array: from_numpy(array).as_subclass(HostTensor))
        context.setattr(torch.Tensor, "cpu", lambda tensor: cpu(tensor).as_subclass(HostTensor))
        context.setattr(torch.Tensor, "numpy", refuse_numpy)
        with torch.device(unnamed):
            yield
