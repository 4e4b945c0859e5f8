"""The judge of instruction sets, on programs of a few lines whose instruction set is known."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.install.disassembly import OBJDUMP, instructions_beyond

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or OBJDUMP is None or shutil.which("c++") is None,
    reason="needs a compiler and objdump for x86-64",
)
SOURCE = """
extern "C" void add(float* a, const float* b) { for (int i = 0; i < 4096; ++i) a[i] += b[i] * 3; }
extern "C" int count(unsigned long x) { return __builtin_popcountl(x); }
"""


def compile_for(level: str, folder: Path, *options: str) -> Path:
    module = folder / "module.so"
    command = ["c++", "-x", "c++", "-", "-O3", "-shared", "-fPIC", f"-march={level}", *options, "-o", str(module)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    return module


def test_code_for_every_x86_64_passes(tmp_path: Path) -> None:
    assert instructions_beyond("baseline", compile_for("x86-64", tmp_path)) == []


@pytest.mark.parametrize(("level", "sign"), [("x86-64-v2", "popcnt"), ("x86-64-v3", "%ymm")])
def test_newer_code_does_not_pass_for_every_x86_64(level: str, sign: str, tmp_path: Path) -> None:
    assert sign in "\n".join(instructions_beyond("baseline", compile_for(level, tmp_path)))


def test_avx2_passes_for_v3_and_avx_512_does_not(tmp_path: Path) -> None:
    assert instructions_beyond("x86-64-v3", compile_for("x86-64-v3", tmp_path)) == []
    wide = compile_for("x86-64-v4", tmp_path, "-mprefer-vector-width=512")
    assert "%zmm" in "\n".join(instructions_beyond("x86-64-v3", wide))
