"""Which instructions a compiled module holds that CPUs of a given level do not have, read off its disassembly.

Judged by mnemonics and registers of the whole module, paths that would never run included: a baseline module with one
stray AVX instruction is wrong, even where nobody reaches it today.
"""

import re
import shutil
import subprocess
from pathlib import Path

OBJDUMP = shutil.which("objdump")
_AVX_512 = r"%zmm\d|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]"
_AVX = r"%ymm\d|\tv[a-z0-9]+\s.*%xmm"
_SINCE_V2 = (
    r"\t(popcnt|crc32|pshufb|palignr|pabs[bwd]|p(min|max)(sb|sd|uw|ud)|pmulld|pmuldq|pblend\w+|blendv?p[sd]|dpp[sd]|"
    r"insertps|extractps|p(insr|extr)[bdq]|round[ps][sd]|pmov[sz]x\w+|ptest|pcmp(eq|gt)q|packusdw|mpsadbw|h(add|sub)p[sd]|"
    r"addsubp[sd]|movddup|movs[hl]dup|lddqu)\s"
)
_SINCE_V3 = r"\t(andn|bextr|blsi|blsr|blsmsk|bzhi|mulx|pdep|pext|rorx|sarx|shlx|shrx|lzcnt|movbe)\w?\s"
MISSING = {
    "baseline": re.compile("|".join((_AVX_512, _AVX, _SINCE_V3, _SINCE_V2))),
    "x86-64-v3": re.compile(_AVX_512),
}
"""Level of x86-64 -> what its CPUs lack, a pattern of disassembled lines. Not `tzcnt`: older CPUs read it as bsf."""


def instructions_beyond(level: str, module: Path) -> list[str]:
    """Disassembled lines of a module that a CPU of `level`, a key of MISSING, cannot run."""
    if OBJDUMP is None:
        raise FileNotFoundError("Expected objdump on the path. Install binutils.")
    listing = subprocess.run(
        [OBJDUMP, "--disassemble", "--no-show-raw-insn", str(module)], capture_output=True, text=True, check=True
    ).stdout
    return [line.strip() for line in listing.splitlines() if MISSING[level].search(line)]
