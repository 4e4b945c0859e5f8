"""Traces of a real server at a collector, and nothing of OpenTelemetry where nobody asked for it."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export import ConsoleSpanExporter

from beamtree.errors import InputError
from beamtree.integrations.telemetry import chosen_exporter
from tests.cli.beamtree_command import Command
from tests.integrations.collector import Collector, running_collector
from tests.serving.models import save_model
from tests.serving.server import REPOSITORY, Server

HEAVY = ("opentelemetry.sdk", "opentelemetry.exporter", "mlflow", "pandas")
"""FastAPI imports the small API of OpenTelemetry by itself where it is there."""
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
INFER = "/v2/models/beamtree/infer"
TENSOR = {"name": "history", "shape": [1, 1], "datatype": "BYTES", "data": ["100"]}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with running_collector() as running:
        yield running


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "model", 60)
    return tmp_path / "model"


def test_spans_of_recommend_arrive(
    collector: Collector, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "films")
    server = Server(model, "--telemetry", log=tmp_path / "log")
    body = {"requests": [{"history": [100, 101], "k": 3}, {"history": [140]}]}
    first = server.post("/v1/recommend", body, traceparent=f"00-{TRACE}-{PARENT}-01", **{"X-Request-ID": "mine"})
    assert first.status == 200
    assert server.post("/v1/recommend", {"history": [100], "k": 5000}).code == "limit_exceeded"
    assert server.post(INFER, {"inputs": [TENSOR]}).status == 200
    assert server.get("/v1/model").status == 200
    assert server.stop() == 0

    assert [span.name for span in collector.spans] == ["POST /v1/recommend"] * 2 + [f"POST {INFER}"]
    answered, refused, inferred = collector.spans
    assert (answered.trace_id, answered.parent_id) == (TRACE, PARENT)
    assert refused.trace_id != TRACE
    assert answered.resource["service.name"] == "films"
    said = answered.attributes
    assert said.keys() == {
        *("http.request.method", "http.route", "http.response.status_code", "beamtree.request_id"),
        *("beamtree.model_version", "beamtree.requests", "beamtree.work"),
        *("beamtree.waited_ms", "beamtree.search_ms", "beamtree.write_ms"),
    }, "no history leaves the server"
    assert (said["http.response.status_code"], said["beamtree.request_id"]) == (200, "mine")
    assert said["beamtree.model_version"] == first.json["model_version"]
    assert said["beamtree.requests"] == 2
    assert said["beamtree.work"] >= 2
    assert said["beamtree.waited_ms"] == pytest.approx(first.json["milliseconds"]["queue"], abs=1e-3)
    assert said["beamtree.search_ms"] == pytest.approx(first.json["milliseconds"]["search"], abs=1e-3)
    assert 0 < said["beamtree.write_ms"] < answered.nanoseconds / 1e6 - said["beamtree.waited_ms"]
    said = refused.attributes
    assert (said["http.response.status_code"], said["error.type"]) == (422, "limit_exceeded")
    assert "beamtree.search_ms" not in said
    assert not refused.is_failure, "a client's fault is no failure of the server"
    assert inferred.attributes["beamtree.requests"] == 1


def test_a_collector_that_is_not_there_holds_nobody_up(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    server = Server(model, "--telemetry", log=tmp_path / "log")
    assert server.recommend(history=[100], k=1)["source"] == "beam"
    assert server.stop() == 0


def test_the_environment_names_the_exporter() -> None:
    assert chosen_exporter({"OTEL_TRACES_EXPORTER": "none"}) is None
    assert isinstance(chosen_exporter({"OTEL_TRACES_EXPORTER": "console"}), ConsoleSpanExporter)
    assert type(chosen_exporter({})).__name__ == "OTLPSpanExporter"
    with pytest.raises(InputError, match=r"expected otlp, console or none, got 'zipkin'"):
        chosen_exporter({"OTEL_TRACES_EXPORTER": "zipkin"})
    with pytest.raises(InputError, match=r"OTEL_EXPORTER_OTLP_PROTOCOL: expected http/protobuf, .* got 'grpc'"):
        chosen_exporter({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert chosen_exporter({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_TRACES_EXPORTER": "none"}) is None


def test_without_the_packages_the_command_says_what_to_install(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("beamtree.cli.serve._has_telemetry", lambda: False)
    outcome = Command(monkeypatch, capsys)("serve", str(model), "--telemetry")
    assert outcome.code != 0
    assert "pip install 'beamtree[telemetry]'" in outcome.err


def test_nothing_of_it_is_imported_unless_asked_for() -> None:
    code = (
        "import sys, beamtree.cli.main, beamtree.cli.serve, beamtree.serving.run, beamtree.recommender\n"
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    finished = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert finished.stdout == "[]\n"
