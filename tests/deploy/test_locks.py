"""The lock files against the package: complete, hashed, in agreement; and the digests of base images."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.dockerfile import CLUSTER_DOCKERFILE, DOCKERFILE, ROOT
from tests.deploy.pin_images import COMPOSE, IMAGE, main, pin

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LOCKS = ("build", "cluster", "docs", "image", "test", "tools")
DIGEST = "sha256:" + "0123456789abcdef" * 4


def entries(name: str) -> list[str]:
    """The entries of a lock file, each with its hashes on one line."""
    text = (ROOT / "requirements" / f"{name}.lock").read_text(encoding="utf-8")
    return [line for line in text.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]


def locked(name: str) -> dict[str, Requirement]:
    """Package -> the version that is locked."""
    found = [Requirement(entry.split("--hash")[0].strip()) for entry in entries(name)]
    return {canonicalize_name(requirement.name): requirement for requirement in found}


def required(extra: str) -> list[Requirement]:
    """What the package and one of its extras ask for, extras within extras included."""
    asked = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
    inner = [
        name for requirement in asked if requirement.name == PROJECT["name"] for name in sorted(requirement.extras)
    ]
    own = [requirement for requirement in asked if requirement.name != PROJECT["name"]]
    return [*map(Requirement, PROJECT["dependencies"]), *own, *(more for name in inner for more in required(name))]


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_is_one_version_with_hashes(name: str) -> None:
    assert entries(name)
    for entry in entries(name):
        assert re.fullmatch(r"[\w.-]+==\S+( ;[^-]*?)?(\s+--hash=sha256:[0-9a-f]{64})+\s*", entry), entry


@pytest.mark.parametrize(("name", "extra"), [("image", "serve"), ("cluster", "ray"), ("test", "dev")])
def test_all_that_the_package_asks_for_is_locked_in_a_version_that_it_allows(name: str, extra: str) -> None:
    versions = locked(name)
    for requirement in required(extra):
        if requirement.name != "torch":
            [pinned] = versions[canonicalize_name(requirement.name)].specifier
            assert requirement.specifier.contains(pinned.version), f"{requirement} is locked as {pinned}: make lock"


def test_what_builds_the_package_is_locked() -> None:
    versions = locked("build")
    asked = [Requirement(text) for text in PYPROJECT["build-system"]["requires"]]
    assert {requirement.name for requirement in asked} | {"cmake", "ninja"} <= versions.keys()
    for requirement in asked:
        [pinned] = versions[requirement.name].specifier
        assert requirement.specifier.contains(pinned.version)


def test_what_is_tested_is_what_is_served() -> None:
    tested, built = locked("test"), locked("build")
    for name, requirement in [*locked("image").items(), *locked("cluster").items()]:
        assert tested[name].specifier == requirement.specifier, f"{name} differs: make lock"
    for name in tested.keys() & built.keys():
        assert tested[name].specifier == built[name].specifier, f"{name} differs: make lock"
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    for line in constraints:
        if line.strip() and not line.startswith("#") and (pin := Requirement(line)).name != "torch":
            assert tested[pin.name].specifier == pin.specifier
    assert "torch" not in tested.keys() | locked("cluster").keys()


def test_images_are_pinned_by_digest_and_pinned_again() -> None:
    dockerfile = "FROM python:3.11-slim AS build\n# FROM python:3\nFROM python:3.11-slim\nCOPY --from=build /a /a\n"
    compose = "services:\n  beamtree:\n    image: beamtree\n  prometheus:\n    image: prom/prometheus:v2.55.1\n"
    digests = {"python:3.11-slim": DIGEST, "prom/prometheus:v2.55.1": DIGEST}
    once = pin(dockerfile, digests.__getitem__)
    assert once == dockerfile.replace("FROM python:3.11-slim", f"FROM python:3.11-slim@{DIGEST}")
    assert pin(compose, digests.__getitem__) == compose.replace("v2.55.1", f"v2.55.1@{DIGEST}")
    newer = DIGEST.replace("0", "f")
    assert pin(once, lambda _: newer) == once.replace(DIGEST, newer)


@pytest.mark.parametrize("path", [DOCKERFILE, CLUSTER_DOCKERFILE, COMPOSE], ids=lambda path: path.name)
def test_what_is_deployed_stands_on_images_by_digest(path: Path) -> None:
    images = [(found[2], found[3]) for found in IMAGE.finditer(path.read_text(encoding="utf-8"))]
    assert images
    assert [image for image, digest in images if digest is None] == []


def test_no_file_is_changed_where_a_digest_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\ncase "$*" in *" known:1") echo {DIGEST};; *) echo none >&2; exit $CODE;; esac\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    first, second = tmp_path / "Dockerfile", tmp_path / "compose.yaml"
    first.write_text("FROM known:1\n")
    second.write_text("  image: unknown:1\n")
    for code in ("0", "1"):
        monkeypatch.setenv("CODE", code)
        with pytest.raises(SystemExit, match="no digest for unknown:1: none"):
            main((first, second))
    assert first.read_text() == "FROM known:1\n"
    main((first,))
    assert first.read_text() == f"FROM known:1@{DIGEST}\n"
