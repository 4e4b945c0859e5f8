"""beamtree doctor: versions, threads, CPU features, the kernels and fast paths in use."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from beamtree import __version__, native
from beamtree.cli.console import fact_table, results
from beamtree.errors import SettingsError
from beamtree.native.variants import VARIABLE, chosen_variant, compiled_variants

PACKAGES = ("numpy", "polars", "pydantic", "safetensors", "torch", "scikit-learn")
FEATURES = ("avx2", "fma", "f16c", "avx512f")


def doctor() -> None:
    """Report versions, CPU features, and the kernels and fast paths in use."""
    facts = {
        "beamtree": __version__,
        "python": f"{platform.python_version()} on {platform.system()} {platform.machine()}",
        **{package: _version(package) for package in PACKAGES},
        "cores": os.cpu_count(),
        "BEAMTREE_THREADS": os.environ.get("BEAMTREE_THREADS", "not set: all cores"),
        "CPU features": ", ".join(_cpu_features()) or "unknown",
        "kernels": _kernels(),
        "retrieval": "compiled kernels" if native.is_available() else "NumPy (slow)",
        "training": _training(),
    }
    results.print(fact_table("beamtree doctor", facts.items()))


def _kernels() -> str:
    if not native.is_available():
        return "not compiled: install a C++ compiler, then install beamtree again"
    try:
        chosen = chosen_variant()
    except SettingsError as error:
        return str(error)
    reason = f"forced by {VARIABLE}" if os.environ.get(VARIABLE) else f"chosen from {', '.join(compiled_variants())}"
    return f"{chosen}, {reason}; {native.threads()} threads"


def _training() -> str:
    if find_spec("torch") is None:
        return "needs torch: pip install 'beamtree[train]'"
    import torch

    if torch.cuda.is_available():
        slow = "compiled kernels" if native.is_available() else "torch (slow)"
        return f"{slow}; with training.device=cuda, torch on {torch.cuda.get_device_name()}"
    return "compiled kernels" if native.is_available() else "torch (slow)"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_features() -> list[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    flags = next((line.split(":", 1)[1].split() for line in lines if line.startswith("flags")), [])
    return [feature for feature in FEATURES if feature in flags]
