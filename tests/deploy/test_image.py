"""The Dockerfiles against the package that they install, without building them."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.deploy.dockerfile import CLUSTER_DOCKERFILE, DOCKERFILE, ROOT, Stage, read_stages

BUILD, RUNTIME = read_stages()
CLUSTER_BUILD, CLUSTER = read_stages(CLUSTER_DOCKERFILE)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
COMPILERS = ("g++", "gcc", "clang", "build-essential", "cmake", "ninja")


def test_all_stages_share_a_slim_python_that_the_package_allows_and_the_locks_are_for() -> None:
    assert BUILD.base == RUNTIME.base == CLUSTER_BUILD.base == CLUSTER.base
    found = re.fullmatch(r"python:(\d+\.\d+)-slim-\w+(@sha256:[0-9a-f]{64})?", BUILD.base)
    assert found is not None
    assert SpecifierSet(PROJECT["requires-python"]).contains(found[1])
    assert f"--python-version {found[1]} " in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize(("build", "runtime"), [(BUILD, RUNTIME), (CLUSTER_BUILD, CLUSTER)])
def test_a_compiler_is_in_the_build_stage_only(build: Stage, runtime: Stage) -> None:
    assert any("g++" in text for text in build.texts("RUN"))
    assert not [text for text in runtime.texts("RUN") if any(name in text for name in COMPILERS)]
    assert runtime.texts("COPY") == ["--from=build /opt/beamtree /opt/beamtree"]


@pytest.mark.parametrize(
    ("stage", "lock", "without_hash"),
    [(BUILD, "image.lock", []), (CLUSTER_BUILD, "cluster.lock", ["--constraint constraints.txt torch"])],
)
def test_all_that_is_fetched_has_a_hash_and_the_kernels_are_built_for_any_machine(
    stage: Stage, lock: str, without_hash: list[str]
) -> None:
    commands = [text for text in stage.texts("RUN") if " -m pip " in text]
    fetching = [text for text in commands if "--no-deps" not in text]
    hashed = [text for text in fetching if "--require-hashes" in text]
    assert [text.split()[-1] for text in hashed] == ["requirements/build.lock", f"requirements/{lock}"]
    assert [text.partition("--no-cache-dir ")[2] for text in fetching if text not in hashed] == without_hash
    [build] = [text for text in commands if " wheel " in text]
    assert "--no-build-isolation" in build, "else pip fetches what builds the package by itself"
    assert "--config-settings" not in build, "what every wheel is built with runs on any machine"
    assert PYPROJECT["tool"]["scikit-build"]["cmake"]["define"]["BEAMTREE_ISA"] == "portable"


def test_the_serve_extra_brings_no_training_packages() -> None:
    required = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["serve"]]
    names = {Requirement(text).name for text in required}
    assert "fastapi" in names
    assert not names & {"torch", "scikit-learn", "onnx", "onnxruntime", "beamtree"}


@pytest.mark.parametrize(
    ("stage", "dockerfile", "own"),
    [
        (BUILD, DOCKERFILE, {"requirements/image.lock"}),
        (CLUSTER_BUILD, CLUSTER_DOCKERFILE, {"requirements/cluster.lock", "constraints.txt"}),
    ],
)
def test_everything_that_building_reads_is_copied_and_let_through(
    stage: Stage, dockerfile: Path, own: set[str]
) -> None:
    copied = {source for text in stage.texts("COPY") for source in text.split()[:-1]}
    needed = {"pyproject.toml", "CMakeLists.txt", "beamtree", PROJECT["readme"], "requirements/build.lock"} | own
    assert copied == needed | set(PROJECT["license-files"])
    rules = dockerfile.with_name(f"{dockerfile.name}.dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {rule[1:] for rule in rules if rule.startswith("!")}
    assert let_through == copied
    assert any(fnmatch("anything", rule) for rule in rules)


def test_the_image_of_the_cluster_has_what_kuberay_calls_and_leaves_the_command_to_it() -> None:
    [packages, user] = CLUSTER.texts("RUN")
    assert {"bash", "procps", "wget"} <= set(packages.partition("--no-install-recommends")[2].split())
    assert not CLUSTER.texts("ENTRYPOINT") + CLUSTER.texts("CMD")
    assert CLUSTER.texts("USER") == RUNTIME.texts("USER")
    assert f"--uid {CLUSTER.texts('USER')[0].split(':')[0]} " in user
    assert "export PATH=/opt/beamtree/bin:$PATH' > /etc/profile.d/" in user, "a login shell sets its own PATH"
    assert any("PATH=/opt/beamtree/bin:$PATH" in text for text in CLUSTER.texts("ENV"))


def test_nobody_is_root_and_health_is_asked() -> None:
    [user] = RUNTIME.texts("USER")
    assert int(user.split(":")[0]) > 0
    assert f"--uid {user.split(':')[0]} " in RUNTIME.texts("RUN")[0]
    [health] = RUNTIME.texts("HEALTHCHECK")
    command = json.loads(health[health.index("[") :])
    assert "/healthz" in command[-1]
    compile(command[-1], "HEALTHCHECK", "exec")
    assert RUNTIME.texts("VOLUME") == ["/model"]


def test_the_health_check_fails_where_nobody_answers() -> None:
    [health] = RUNTIME.texts("HEALTHCHECK")
    script = json.loads(health[health.index("[") :])[-1].replace(":8000", ":1")
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("name", ["Dockerfile", "beamtree.service"])
def test_the_command_has_every_option_it_is_given(name: str) -> None:
    usage = subprocess.run(
        [sys.executable, "-c", "from beamtree.cli.main import app; app(['serve', '--help'])"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200", "PATH": "/usr/bin:/bin"},
    ).stdout
    given = {
        "Dockerfile": " ".join(RUNTIME.texts("ENTRYPOINT") + RUNTIME.texts("CMD")),
        "beamtree.service": (ROOT / "deploy" / "beamtree.service").read_text(encoding="utf-8"),
    }[name]
    [command] = re.findall(r"serve.*", given.partition("ExecStart=")[2] or given)[:1]
    options = set(re.findall(r"--[a-z-]+", command))
    assert {"--host", "--port"} <= options
    assert all(option in usage for option in options)
