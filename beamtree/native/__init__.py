"""CPU kernels: compiled on install, with plain NumPy and torch paths where no compiler is at hand.

`is_available()` says whether compiled modules are there; the other modules of this package need one. Which of them is
loaded is decided in `variants`. All kernels share one pool of threads, sized by `set_threads`, else by the variable
BEAMTREE_THREADS, else by the cores of the process.
"""

from __future__ import annotations

from beamtree.native.variants import compiled_variants

__all__ = ["is_available", "set_threads", "threads"]


def is_available() -> bool:
    """Whether the kernels were compiled when this package was installed."""
    return bool(compiled_variants())


def threads() -> int:
    """Threads that the kernels use."""
    from beamtree.native import _kernels

    return _kernels.threads()


def set_threads(count: int) -> None:
    """Let the kernels use `count` threads, at least one; waits for work that is under way."""
    from beamtree.native import _kernels

    _kernels.set_threads(count)
