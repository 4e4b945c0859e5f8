"""The Dockerfile against the package it installs, without building it."""

import json
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.deploy.dockerfile import DOCKERFILE, ROOT, read_stages

BUILD, RUNTIME = read_stages()
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
COMPILERS = ("g++", "gcc", "clang", "build-essential", "cmake", "ninja")


def test_both_stages_share_a_slim_python_that_the_package_allows() -> None:
    assert BUILD.base == RUNTIME.base
    found = re.fullmatch(r"python:(\d+\.\d+)-slim-\w+(@sha256:[0-9a-f]{64})?", BUILD.base)
    assert found is not None
    assert SpecifierSet(PROJECT["requires-python"]).contains(found[1])


def test_a_compiler_is_in_the_build_stage_only() -> None:
    assert any("g++" in text for text in BUILD.texts("RUN"))
    assert not [text for text in RUNTIME.texts("RUN") if any(name in text for name in COMPILERS)]
    assert RUNTIME.texts("COPY") == ["--from=build /opt/beamtree /opt/beamtree"]


def test_all_that_is_fetched_has_a_hash_and_the_kernels_are_built_for_any_machine() -> None:
    commands = [text for text in BUILD.texts("RUN") if " -m pip " in text]
    fetching = [text for text in commands if "--no-deps" not in text]
    assert [text.split()[-1] for text in fetching] == ["requirements/build.lock", "requirements/image.lock"]
    assert all("--require-hashes" in text for text in fetching)
    [build] = [text for text in commands if " wheel " in text]
    assert "--no-build-isolation" in build, "else pip fetches what builds the package by itself"
    assert "--config-settings" not in build, "what every wheel is built with runs on any machine"
    assert PYPROJECT["tool"]["scikit-build"]["cmake"]["define"]["BEAMTREE_ISA"] == "portable"


def test_the_serve_extra_brings_no_training_packages() -> None:
    required = [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["serve"]]
    names = {Requirement(text).name for text in required}
    assert "fastapi" in names
    assert not names & {"torch", "scikit-learn", "onnx", "onnxruntime", "beamtree"}


def test_everything_that_building_reads_is_copied_and_let_through() -> None:
    copied = {source for text in BUILD.texts("COPY") for source in text.split()[:-1]}
    locks = {"requirements/build.lock", "requirements/image.lock"}
    needed = {"pyproject.toml", "CMakeLists.txt", "beamtree", PROJECT["readme"]} | locks
    assert copied == needed | set(PROJECT["license-files"])
    rules = DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    let_through = {rule[1:] for rule in rules if rule.startswith("!")}
    assert let_through == copied
    assert any(fnmatch("anything", rule) for rule in rules)


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
