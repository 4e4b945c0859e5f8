"""CPU kernels: compiled on install, with plain NumPy and torch paths where no compiler is at hand.

`is_available()` says whether the compiled module is there; the other modules of this package need it. All kernels share
one pool of threads, sized by `set_threads`, else by the variable BEAMTREE_THREADS, else by the cores of the process.
"""

from __future__ import annotations

import importlib.util

__all__ = ["is_available", "set_threads", "threads"]


def is_available() -> bool:
    """Whether the kernels were compiled when this package was installed."""
    return importlib.util.find_spec("beamtree.native._kernels") is not None


def threads() -> int:
    """Threads that the kernels use."""
    from beamtree.native import _kernels

    return _kernels.threads()


def set_threads(count: int) -> None:
    """Let the kernels use `count` threads, at least one; waits for work that is under way."""
    from beamtree.native import _kernels

    _kernels.set_threads(count)
