"""Files that others read: workflows, issue forms, citation, and the configuration of the wheels."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    return [step for job in read(workflow)["jobs"].values() for step in job["steps"]]


def test_there_is_a_workflow_for_tests_wheels_and_docs() -> None:
    called = {step["run"] for workflow in WORKFLOWS for step in steps(workflow) if "run" in step}
    assert {"make test", "make wheel", "make wheels", "make docs"} <= called


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_that_exist(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    called = [command.split()[1] for command in commands if command.startswith("make ")]
    assert called
    assert set(called) <= TARGETS
    assert all(command.startswith(("make ", "apt-get ")) for command in commands)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_may_only_read_and_name_actions_by_commit(workflow: Path) -> None:
    assert read(workflow)["permissions"] == {"contents": "read"}
    actions = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert actions
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", action) for action in actions)


def test_wheels_are_built_for_linux_on_both_architectures_and_for_macos() -> None:
    matrix = read(ROOT / ".github" / "workflows" / "wheels.yml")["jobs"]["wheels"]["strategy"]["matrix"]["os"]
    assert [name.partition("-")[0] for name in matrix] == ["ubuntu", "ubuntu", "macos"]
    assert [name for name in matrix if name.endswith("-arm")]
    settings = PYPROJECT["tool"]["cibuildwheel"]
    script = settings["test-command"].partition("{project}/")[2]
    assert (ROOT / script).is_file()
    lowest = PYPROJECT["project"]["requires-python"].removeprefix(">=").replace(".", "")
    assert settings["build"][0] == f"cp{lowest}-*"


def test_wheels_run_on_any_cpu_and_editable_installs_compile_once() -> None:
    settings = PYPROJECT["tool"]["scikit-build"]
    assert settings["cmake"]["define"]["BEAMTREE_ISA"] == "portable"
    [editable] = [entry for entry in settings["overrides"] if entry["if"] == {"state": "editable"}]
    assert editable["cmake"]["define"] == settings["cmake"]["define"] | {"BEAMTREE_ISA": "native"}
    assert "{state}" in settings["build-dir"], "else both kinds of build share a cache of settings"


def test_the_citation_is_of_this_version_and_licence() -> None:
    citation = read(ROOT / "CITATION.cff")
    assert citation["version"] == PYPROJECT["project"]["version"]
    assert citation["license"] == PYPROJECT["project"]["license"]
    assert citation["references"][0]["title"].startswith("Learning Deep Tree-based Retriever")


@pytest.mark.parametrize("name", ["bug", "idea"])
def test_issue_forms_ask_under_names_of_their_own(name: str) -> None:
    form = read(ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml")
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    assert form["name"]
    assert form["description"]
    assert (
        len({field["id"] for field in fields}) == len({field["attributes"]["label"] for field in fields}) == len(fields)
    )
    assert any(field.get("validations", {}).get("required") for field in fields)


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md"])
def test_links_between_community_files_lead_somewhere(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert all((ROOT / link).exists() for link in links)
    for target in re.findall(r"`make ([a-z-]+)", text):
        assert target in TARGETS
