"""A wheel of this source tree and of the kernels that are already compiled, installed into an environment of its own.

`make wheel` builds the real one, kernels for every CPU included, and installs its dependencies from files too.
"""

import importlib.util
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamtree import native
from beamtree.native.variants import compiled_variants

pytest.importorskip("scikit_build_core", reason="requirements/build.lock is not installed")

ROOT = Path(__file__).resolve().parents[2]
BUILD = (
    "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1], {'wheel.cmake': 'false'})"
)

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the kernels were not compiled")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that a wheel holds; the compiled modules are taken from the environment that runs the tests."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    [path] = folder.glob("*.whl")
    with zipfile.ZipFile(path) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        contents = {name: archive.read(name) for name in archive.namelist()}
    modules = {f"beamtree/native/{module.name}": module.read_bytes() for module in compiled_modules()}
    contents[record] += "".join(f"{name},,\n" for name in modules.keys() - contents.keys()).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in (contents | modules).items():
            archive.writestr(name, data)
    return path


def compiled_modules() -> Iterator[Path]:
    for name in ("_cpu", *(f"_kernels_{variant.replace('-', '_')}" for variant in compiled_variants())):
        spec = importlib.util.find_spec(f"beamtree.native.{name}")
        assert spec is not None
        assert spec.origin is not None
        yield Path(spec.origin)


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, installed without an index; it sees the dependencies of this one."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(command, check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return folder


def run(*command: Path | str, cwd: Path) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "BEAMTREE_KERNELS")}
    return subprocess.run(
        command, cwd=cwd, env=kept | {"COLUMNS": "200"}, check=True, stdout=subprocess.PIPE
    ).stdout.decode()


def test_the_installed_wheel_recommends_with_all_its_kernels(environment: Path, tmp_path: Path) -> None:
    python = environment / "bin" / "python"
    answer = run(python, "-I", ROOT / "tests" / "install" / "recommend_once.py", cwd=tmp_path)
    assert answer.splitlines() == [f"{variant}: 18 recommendations as kept" for variant in compiled_variants()]


def test_the_installed_command_recommends(environment: Path, tmp_path: Path) -> None:
    model = str(ROOT / "tests" / "fixtures" / "artefact-v3")
    shown = run(environment / "bin" / "beamtree", "recommend", model, "--history", "16,13", "-k", "3", cwd=tmp_path)
    assert "13" in shown
    assert compiled_variants()[0] in run(environment / "bin" / "beamtree", "doctor", cwd=tmp_path)


def test_the_wheel_holds_the_page_and_no_sources(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {"beamtree/py.typed", "beamtree/serving/page/dist/index.html", "beamtree/serving/page/dist/page.js"} <= names
    assert not [name for name in names if name.endswith((".cpp", ".hpp", ".ts", "package.json"))]
    assert not [name for name in names if not name.startswith(("beamtree/", "beamtree-"))]
