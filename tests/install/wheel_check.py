"""Looks into a built wheel, installs it into a clean environment without an index, and lets it recommend.

    python -m tests.install.wheel_check dist/beamtree-0.1.0-cp311-cp311-manylinux_2_34_x86_64.whl

The last step of `make wheel`. Kernels that would need a CPU beyond their name are refused, and so is a wheel without a
manylinux tag. The dependencies are those of requirements/image.lock, fetched by hash and then installed from a folder.
The kernels' own tests run with every variant in the wheel.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path

from packaging.utils import parse_wheel_filename

from beamtree.native.variants import VARIABLE
from tests.install.disassembly import instructions_beyond

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = ROOT / "requirements" / "image.lock"
ALWAYS_ABSENT = (".cpp", ".hpp", ".ts", "package.json", "CMakeLists.txt")


def check_contents(folder: Path, *, is_x86_64: bool) -> list[str]:
    """The variants in an unpacked wheel; SystemExit where one is missing or beyond the CPUs that it is named for."""
    modules = {path.name.partition(".")[0]: path for path in (folder / "beamtree" / "native").glob("*.so")}
    variants = ["x86-64-v3", "baseline"] if is_x86_64 else ["baseline"]
    expected = {f"_kernels_{variant.replace('-', '_')}": variant for variant in variants}
    if modules.keys() != {"_cpu", *expected}:
        raise SystemExit(f"Expected the modules _cpu, {', '.join(expected)}, got {', '.join(sorted(modules))}.")
    if is_x86_64:
        for name, level in {"_cpu": "baseline", **expected}.items():
            lines = instructions_beyond(level, modules[name])
            if lines:
                raise SystemExit(f"{name}: {len(lines)} instructions that {level} lacks, the first: {lines[0]}.")
            print(f"{modules[name].name}: no instruction beyond {level}")
    unwanted = [str(path) for path in folder.rglob("*") if path.name.endswith(ALWAYS_ABSENT)]
    if unwanted:
        raise SystemExit(f"Expected no sources in the wheel, got {', '.join(unwanted)}.")
    return variants


def install_without_index(wheel: Path, *, folder: Path) -> Path:
    """A new environment with the wheel and its dependencies, all from files; gives its interpreter."""
    files = folder / "files"
    environment = folder / "environment"
    pip = [sys.executable, "-m", "pip"]
    locked = ["--require-hashes", "--requirement", str(DEPENDENCIES)]
    subprocess.run([*pip, "download", "--quiet", "--only-binary=:all:", *locked, "--dest", str(files)], check=True)
    venv.create(environment, with_pip=False)
    python = environment / "bin" / "python"
    install = [*pip, "--python", str(python), "install", "--quiet", "--no-index", "--find-links", str(files)]
    subprocess.run([*install, str(wheel)], check=True, env=_without_pip_settings())
    return python


def run_kernel_tests(unpacked: Path, *, variant: str) -> None:
    """tests/native against the wheel's package, with the packages of this environment but not its beamtree.

    Without the one that compiles the headers, which a wheel does not have.
    """
    environment = unpacked.with_name("tests")
    if not environment.exists():
        venv.create(environment, with_pip=False)
        [packages] = environment.glob("lib/python*/site-packages")
        (packages / "tests.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
        shutil.copytree(ROOT / "tests", unpacked / "tests", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", unpacked)
    tests = ["tests/native", "--ignore=tests/native/test_instruction_sets.py"]
    command = [str(environment / "bin" / "python"), "-m", "pytest", "-p", "no:cacheprovider", *tests]
    subprocess.run(command, cwd=unpacked, env={**os.environ, VARIABLE: variant}, check=True)


def _without_pip_settings() -> dict[str, str]:
    """So that no configured folder or index helps out."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    return kept | {"PIP_CONFIG_FILE": os.devnull}


def main() -> None:
    """Parse the command line, check, and say what the wheel is for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    wheel: Path = parser.parse_args().wheel.resolve()
    platforms = sorted(tag.platform for tag in parse_wheel_filename(wheel.name)[3])
    if sys.platform == "linux" and not all(name.startswith("manylinux") for name in platforms):
        raise SystemExit(f"Expected a manylinux tag, got {', '.join(platforms)}. Let auditwheel repair the wheel.")
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "unpacked"
        zipfile.ZipFile(wheel).extractall(unpacked)
        variants = check_contents(unpacked, is_x86_64=platforms[0].endswith("x86_64"))
        python = install_without_index(wheel, folder=Path(folder))
        subprocess.run([python, "-I", ROOT / "tests" / "install" / "recommend_once.py"], cwd=folder, check=True)
        subprocess.run([python.with_name("beamtree"), "doctor"], cwd=folder, check=True)
        for variant in variants:
            run_kernel_tests(unpacked, variant=variant)
    print(f"{wheel.name}, {wheel.stat().st_size / 1e6:.1f} MB: {', '.join(platforms)}")


if __name__ == "__main__":
    main()
