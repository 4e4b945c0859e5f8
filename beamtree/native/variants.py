"""The kernels are compiled once per instruction set; on first use the best that the CPU can run is loaded.

    native       for the CPU of the machine that compiled it; the only one of an editable install
    x86-64-v3    AVX2, FMA, BMI and F16C: Intel since Haswell (2013), AMD since Excavator (2015)
    baseline     every CPU of the architecture; the only one of a wheel for another architecture than x86-64

The variable BEAMTREE_KERNELS names one of them to be taken instead.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Collection, Sequence
from types import ModuleType

from beamtree.errors import SettingsError

VARIANTS = ("native", "x86-64-v3", "baseline")
"""Best first."""
VARIABLE = "BEAMTREE_KERNELS"
_UNCHECKED = ("native", "baseline")
"""Compiled for this machine, or for all: the CPU is not asked."""


def compiled_variants() -> tuple[str, ...]:
    """The variants that this installation holds, best first; empty where it was installed without a compiler."""
    return tuple(variant for variant in VARIANTS if importlib.util.find_spec(_module_name(variant)) is not None)


def chosen_variant() -> str:
    """The variant that the kernels are taken from in this process.

    SettingsError where BEAMTREE_KERNELS names one that is unknown, not compiled or not for this CPU; ImportError where
    none is compiled.
    """
    from beamtree.native import _cpu

    return choose_variant(
        os.environ.get(VARIABLE) or None,
        compiled=compiled_variants(),
        runnable={*_UNCHECKED, *_cpu.instruction_sets()},
    )


def choose_variant(wanted: str | None, *, compiled: Sequence[str], runnable: Collection[str]) -> str:
    """The wanted variant or, without a wish, the first of `compiled` that this CPU can run; fails as chosen_variant."""
    usable = [variant for variant in compiled if variant in runnable]
    if not usable:
        raise ImportError("The kernels were not compiled. Install a C++ compiler, then install beamtree again.")
    if wanted is None:
        return usable[0]
    remedy = f"Set it to {' or '.join(usable)}, or unset it to get {usable[0]}."
    if wanted not in compiled:
        raise SettingsError(
            f"{VARIABLE}: expected kernels that this installation holds ({', '.join(compiled)}), got '{wanted}'. "
            f"{remedy}"
        )
    if wanted not in runnable:
        raise SettingsError(f"{VARIABLE}: expected kernels that this CPU can run, got '{wanted}'. {remedy}")
    return wanted


def load_kernels() -> ModuleType:
    """The compiled module of the chosen variant; fails as chosen_variant."""
    return importlib.import_module(_module_name(chosen_variant()))


def _module_name(variant: str) -> str:
    return f"beamtree.native._kernels_{variant.replace('-', '_')}"
