import os
import platform
import resource
from pathlib import Path

import pytest
import torch

from beamtree.machine import available_memory, freed_memory_kept

SYSTEM = "MemTotal:       2000 kB\nMemAvailable:   1000 kB\nHugePages_Total:       0\n"
ALL_MEMORY = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def put(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ALL_MEMORY),
        ({"meminfo": SYSTEM}, 1_024_000),
        ({"meminfo": SYSTEM, "memory.max": "max\n", "memory.current": "5\n"}, 1_024_000),
        ({"meminfo": SYSTEM, "memory.max": "700000\n", "memory.current": "500000\n"}, 200_000),
        ({"memory.max": "700", "memory.current": "600", "memory.stat": "anon 5\ninactive_file 50\n"}, 150),
        ({"memory.max": "700", "memory.current": "800"}, 0),
        ({"memory/memory.limit_in_bytes": "70", "memory/memory.usage_in_bytes": "40"}, 30),
        ({"own": "0::/a.slice/b\n", "a.slice/b/memory.max": "70", "a.slice/b/memory.current": "50"}, 20),
        ({"own": "0::/\n", "memory.max": "70", "memory.current": "60"}, 10),
    ],
    ids=["all", "system", "no limit", "container", "caches", "over the limit", "first version", "service", "root"],
)
def test_available_memory_is_what_system_and_container_leave(
    tmp_path: Path, files: dict[str, str], expected: int
) -> None:
    folder = put(tmp_path, files)
    found = available_memory(memory_info=folder / "meminfo", control_groups=folder, own_control_group=folder / "own")
    assert found == expected


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_kept_memory_is_used_again() -> None:
    megabytes, rounds = 48, 20  # more than what glibc keeps by itself

    def page_faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(rounds):
            torch.ones(megabytes * 2**18)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    returned = page_faults()
    if returned < rounds * megabytes:
        pytest.skip("pages are huge here: there is nothing to gain")
    with freed_memory_kept():
        kept = page_faults()

    assert kept < returned / 5
    assert page_faults() > 5 * kept
