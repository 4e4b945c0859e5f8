"""The memory of this process: what is left under the limits of its container or service, and when it is given back."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY_INFO = Path("/proc/meminfo")
CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_CONTROL_GROUP = Path("/proc/self/cgroup")
_CONTROL_GROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""Limit, use and details of a control group, of the second version and of the first."""


def available_memory(
    *,
    memory_info: Path = MEMORY_INFO,
    control_groups: Path = CONTROL_GROUPS,
    own_control_group: Path = OWN_CONTROL_GROUP,
) -> int:
    """Bytes that can still be allocated without swapping or reaching the limit of the container or service.

    All memory of the machine, where the system does not say what is left. memory_info, control_groups,
    own_control_group: where Linux tells.
    """
    kilobytes = _table(memory_info).get("MemAvailable:")
    bounds = [_all_memory() if kilobytes is None else kilobytes * 1024]
    for folder in (control_groups, control_groups / _own_group(own_control_group)):
        for limit_file, use_file, details_file in _CONTROL_GROUP_FILES:
            limit, used = _number(folder / limit_file), _number(folder / use_file)
            if limit is not None and used is not None:
                reclaimable = _table(folder / details_file).get("inactive_file", 0)
                bounds.append(max(0, limit - used + reclaimable))
    return min(bounds)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt: above how many free bytes memory is given back, and what is mapped on its own."""


@contextmanager
def freed_memory_kept(*, up_to: int = 2**30) -> Iterator[None]:
    """Memory that is freed meanwhile is used again instead of going back to the system; it goes back at the end.

    A training step allocates and frees the same megabytes as the step before. If these are returned in between, every
    step takes thousands of page faults, up to an eighth of its time. up_to: bytes that are kept. Only with glibc;
    other allocators are left alone.
    """
    try:
        libc = ctypes.CDLL(None)
        set_parameter, give_back = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError, TypeError):
        yield
        return
    set_parameter(_MMAP_THRESHOLD, up_to)
    set_parameter(_TRIM_THRESHOLD, up_to)
    try:
        yield
    finally:
        set_parameter(_MMAP_THRESHOLD, 2**25)  # where glibc's own adaptation ends
        set_parameter(_TRIM_THRESHOLD, 2**26)
        give_back(0)


def _all_memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _own_group(listing: Path) -> str:
    """The path of this process's control group below their root; empty if unknown."""
    try:
        lines = listing.read_text().splitlines()
    except OSError:
        return ""
    return next((line.removeprefix("0::/") for line in lines if line.startswith("0::/")), "")


def _number(path: Path) -> int | None:
    """The number in a file; None where there is no such file, or it says `max`."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _table(path: Path) -> dict[str, int]:
    """Lines of a name and a number, by name; empty where there is no such file."""
    try:
        lines = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdigit()}
