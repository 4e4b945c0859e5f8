"""The kernels' smallest operations, compiled for every instruction set of the wheels and compared with NumPy.

An editable installation holds kernels for its own machine only; the others must not wait for a wheel to be tested.
"""

import math
import platform
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from beamtree.native import _cpu
from tests.install.disassembly import OBJDUMP, instructions_beyond

SOURCE = Path(__file__).with_name("print_lanes.cpp")
OPTIONS = ("-std=c++20", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math")
WARNINGS = ("-Wall", "-Wextra", "-Werror", "-Wno-psabi")
ON_X86_64 = platform.machine() == "x86_64"
INSTRUCTION_SETS = {"baseline": ["-march=x86-64"], "x86-64-v3": ["-march=x86-64-v3"]} if ON_X86_64 else {"baseline": []}
FLOATS = np.array([-3.5, -0.75, -0.0, 0.0, 1e-3, 0.5, 2.25, 80.0], dtype=np.float32)
DOUBLES = np.array([-3.5, -0.0, 1e-3, 80.0])


def expected_lanes(x: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "multiply_add": x + x * (x + 1),
        "positive_part": np.maximum(x, 0),
        "keep": np.where(x > 0, x, 0),
        "leaky": np.where(x > 0, x, x / 4),
        "positive_bits": np.array([sum(1 << i for i in np.flatnonzero(x > 0))]),
        "horizontal_sum": np.array([x.sum()]),
    }


def expected_functions() -> dict[str, np.ndarray]:
    x = FLOATS.astype(np.float64)
    erf = np.array([math.erf(value) for value in x])
    normal = np.array([(1 + math.erf(value / math.sqrt(2))) / 2 for value in x])
    word, chosen = 0xF0F0123456789ABC, 0x842100FF11000FF1
    bits = [(word >> place) & 1 for place in range(64) if (chosen >> place) & 1]
    return {
        "exponential": np.exp(x),
        "error_function": erf,
        "gelu": x * normal,
        "halves": np.array([0.1, -2.5, 6e-8], dtype=np.float16).astype(np.float64),
        "extract_bits": np.array([sum(bit << place for place, bit in enumerate(bits))]),
    }


def read_lines(printed: str) -> dict[str, list[float]]:
    """Section and operation -> numbers; a line of one word opens a section."""
    found = {}
    section = ""
    for line in printed.splitlines():
        operation, *numbers = line.split()
        if numbers:
            found[f"{section} {operation}"] = [float(number) for number in numbers]
        else:
            section = operation
    return found


@pytest.mark.skipif(shutil.which("c++") is None, reason="there is no compiler")
@pytest.mark.parametrize("name", INSTRUCTION_SETS)
def test_every_instruction_set_gives_the_numbers_of_numpy(name: str, tmp_path: Path) -> None:
    program = tmp_path / "lanes"
    command = ["c++", *OPTIONS, *WARNINGS, *INSTRUCTION_SETS[name], str(SOURCE), "-o", str(program)]
    subprocess.run(command, check=True)
    if ON_X86_64 and OBJDUMP is not None:
        assert instructions_beyond(name, program) == []
    if name not in ("baseline", *_cpu.instruction_sets()):
        pytest.skip("this CPU cannot run them")
    found = read_lines(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
    expected = {
        **{f"float {name}": numbers for name, numbers in expected_lanes(FLOATS).items()},
        **{f"double {name}": numbers for name, numbers in expected_lanes(DOUBLES).items()},
        **{f"functions {name}": numbers for name, numbers in expected_functions().items()},
    }
    assert found.keys() == expected.keys()
    for operation, numbers in expected.items():
        np.testing.assert_allclose(found[operation], numbers, rtol=3e-6, atol=4e-7, err_msg=operation)
