"""The compose file and what Prometheus is told, read as data."""

import re
from typing import Any

import yaml

from tests.deploy.dockerfile import DOCKERFILE, ROOT, read_stages

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
SERVER = COMPOSE["services"]["beamtree"]
SERVICE_KEYS = {
    "build", "cap_drop", "depends_on", "environment", "image", "ports", "read_only", "restart", "security_opt",
    "stop_grace_period", "tmpfs", "volumes",
}  # fmt: skip


def test_only_keys_that_compose_knows() -> None:
    assert set(COMPOSE) == {"name", "services", "volumes"}
    for service in COMPOSE["services"].values():
        assert set(service) <= SERVICE_KEYS


def test_the_image_is_built_from_our_dockerfile() -> None:
    context = (DEPLOY / SERVER["build"]["context"]).resolve()
    assert context == ROOT
    assert context / SERVER["build"]["dockerfile"] == DOCKERFILE


def test_the_model_is_mounted_where_the_image_looks_and_cannot_be_written() -> None:
    command = read_stages()[-1].texts("CMD")[0]
    [model] = [volume for volume in SERVER["volumes"] if "BEAMTREE_MODEL" in volume]
    target, mode = re.sub(r"^\$\{.*?\}:", "", model).split(":")
    assert f'"{target}"' in command
    assert mode == "ro"
    assert SERVER["read_only"] is True


def test_named_volumes_are_declared_and_mounted_files_exist() -> None:
    for service in COMPOSE["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (DEPLOY / source).is_file()
            elif not source.startswith("${"):
                assert source in COMPOSE["volumes"]


def test_nothing_is_reachable_from_outside_this_machine() -> None:
    ports = [port for service in COMPOSE["services"].values() for port in service["ports"]]
    assert len(ports) == 2
    assert all(port.startswith("127.0.0.1:") for port in ports)


def test_prometheus_scrapes_the_server_where_it_listens() -> None:
    [job] = PROMETHEUS["scrape_configs"]
    [target] = [target for group in job["static_configs"] for target in group["targets"]]
    name, port = target.split(":")
    assert name in COMPOSE["services"]
    assert port in read_stages()[-1].texts("EXPOSE")
    assert SERVER["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert job["metrics_path"] == "/metrics"
    waits_for = COMPOSE["services"]["prometheus"]["depends_on"][name]["condition"]
    assert waits_for == "service_healthy"
    assert read_stages()[-1].texts("HEALTHCHECK")
