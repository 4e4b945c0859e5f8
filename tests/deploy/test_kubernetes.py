"""The Kubernetes files against the published schemas of Kubernetes, and the RayJob against the fields we know of.

No schema of KubeRay is installed here: the names of its fields are kept by hand, the pods inside it are checked by
Kubernetes' own schema. Nothing of this shows that a cluster accepts the files.
"""

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from beamtree import __version__
from tests.deploy.dockerfile import CLUSTER_DOCKERFILE, ROOT, read_stages

FOLDER = ROOT / "deploy" / "kubernetes"
FILES = sorted(FOLDER.glob("*.yaml"))
KUBERNETES = "1.30"
RAY_FIELDS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["entrypoint", "rayClusterSpec"],
    "properties": {
        "entrypoint": {"type": "string"},
        "shutdownAfterJobFinishes": {"type": "boolean"},
        "ttlSecondsAfterFinished": {"type": "integer"},
        "backoffLimit": {"type": "integer"},
        "rayClusterSpec": {
            "type": "object",
            "additionalProperties": False,
            "required": ["headGroupSpec"],
            "properties": {
                "rayVersion": {"type": "string"},
                "headGroupSpec": {"$ref": "#/$defs/head"},
                "workerGroupSpecs": {"type": "array", "items": {"$ref": "#/$defs/workers"}},
            },
        },
    },
    "$defs": {
        "parameters": {"type": "object", "additionalProperties": {"type": "string"}},
        "head": {
            "type": "object",
            "additionalProperties": False,
            "required": ["rayStartParams", "template"],
            "properties": {"rayStartParams": {"$ref": "#/$defs/parameters"}, "template": {"type": "object"}},
        },
        "workers": {
            "type": "object",
            "additionalProperties": False,
            "required": ["groupName", "maxReplicas", "minReplicas", "template"],
            "properties": {
                "groupName": {"type": "string"},
                "replicas": {"type": "integer"},
                "minReplicas": {"type": "integer"},
                "maxReplicas": {"type": "integer"},
                "rayStartParams": {"$ref": "#/$defs/parameters"},
                "template": {"type": "object"},
            },
        },
    },
}


def documents(kind: str | None = None) -> list[dict[str, Any]]:
    found = [document for file in FILES for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))]
    return [document for document in found if kind in (None, document["kind"])]


def ray_pods() -> list[dict[str, Any]]:
    """The templates of the pods of a RayJob."""
    [job] = documents("RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    return [cluster["headGroupSpec"]["template"], *(group["template"] for group in cluster["workerGroupSpecs"])]


def check(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, KUBERNETES, strict=True)


@pytest.mark.parametrize("kind", ["Deployment", "PersistentVolumeClaim", "PodDisruptionBudget", "Service"])
def test_kubernetes_knows_every_field(kind: str) -> None:
    assert documents(kind)
    for document in documents(kind):
        check(document)


def test_no_other_kind_goes_unchecked() -> None:
    kinds = {document["kind"] for document in documents()}
    assert kinds == {"Deployment", "PersistentVolumeClaim", "PodDisruptionBudget", "RayJob", "Service"}


def test_a_misspelt_field_would_be_found() -> None:
    [deployment] = documents("Deployment")
    wrong = copy.deepcopy(deployment)
    wrong["spec"]["template"]["spec"]["containers"][0]["redinessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="redinessProbe"):
        check(wrong)


def test_the_fields_of_the_ray_job() -> None:
    [job] = documents("RayJob")
    assert job["apiVersion"] == "ray.io/v1"
    jsonschema.validate(job["spec"], RAY_FIELDS)
    for pod in ray_pods():
        check({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "ray"}, **pod})


def test_the_ray_job_asks_for_no_more_than_it_has() -> None:
    [job] = documents("RayJob")
    words = shlex.split(job["spec"]["entrypoint"])
    asked = {name: int(words[words.index(name) + 1]) for name in ("--workers", "--worker-threads")}
    [group] = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    cpus = int(group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"])
    assert group["replicas"] * (cpus // asked["--worker-threads"]) == asked["--workers"]


def test_the_entrypoint_is_a_command_that_exists() -> None:
    from typer.main import get_command

    from beamtree.cli.main import app

    [job] = documents("RayJob")
    name, command, *rest = shlex.split(job["spec"]["entrypoint"])
    assert name == "beamtree"
    known = {option for parameter in get_command(app).commands[command].params for option in parameter.opts}  # type: ignore[attr-defined]
    assert {word for word in rest if word.startswith("--")} <= known


def test_claims_that_pods_mount_are_there() -> None:
    claims = {claim["metadata"]["name"] for claim in documents("PersistentVolumeClaim")}
    pods = [*ray_pods(), *(deployment["spec"]["template"] for deployment in documents("Deployment"))]
    for pod in pods:
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        mounted = {mount["name"] for container in pod["spec"]["containers"] for mount in container["volumeMounts"]}
        assert mounted == set(volumes)
        asked = [volume["persistentVolumeClaim"] for volume in volumes.values() if "emptyDir" not in volume]
        assert {claim["claimName"] for claim in asked} <= claims


def test_the_server_is_what_the_image_runs() -> None:
    [deployment], [service], [budget] = documents("Deployment"), documents("Service"), documents("PodDisruptionBudget")
    [server] = deployment["spec"]["template"]["spec"]["containers"]
    assert f"CMD {yaml.safe_load(read_stages()[-1].texts('CMD')[0])}" == f"CMD {server['args']}"
    labels = deployment["spec"]["template"]["metadata"]["labels"].items()
    for selector in (deployment["spec"]["selector"]["matchLabels"], service["spec"]["selector"]):
        assert selector.items() <= labels
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    assert service["spec"]["ports"][0]["targetPort"] == server["ports"][0]["name"]
    user = deployment["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert any(str(user) in text for text in read_stages()[-1].texts("USER"))


def test_the_probes_ask_for_routes_that_exist() -> None:
    from beamtree.serving.routes import health

    [deployment] = documents("Deployment")
    [server] = deployment["spec"]["template"]["spec"]["containers"]
    source = Path(health.__file__).read_text(encoding="utf-8")
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert f'"{server[probe]["httpGet"]["path"]}"' in source


def test_versions_agree() -> None:
    images = [container["image"] for pod in ray_pods() for container in pod["spec"]["containers"]]
    assert all(image.endswith(f":{__version__}") for image in images)
    [job] = documents("RayJob")
    lock = (ROOT / "requirements" / "cluster.lock").read_text(encoding="utf-8")
    locked = re.search(r"^ray==(\S+)", lock, re.MULTILINE)
    assert locked is not None
    assert job["spec"]["rayClusterSpec"]["rayVersion"] == locked[1]


def test_the_pods_of_the_cluster_run_as_the_user_of_its_image() -> None:
    user, group = map(int, read_stages(CLUSTER_DOCKERFILE)[-1].texts("USER")[0].split(":"))
    for pod in ray_pods():
        assert pod["spec"]["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": user,
            "runAsGroup": group,
            "fsGroup": group,
        }
        assert not [container for container in pod["spec"]["containers"] if {"command", "args"} & container.keys()]
