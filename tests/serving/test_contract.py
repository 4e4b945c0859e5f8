"""The server keeps the promises of its own OpenAPI document, whatever is sent to it."""

import subprocess
import sys
from pathlib import Path

from tests.serving.conftest import StartServer

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
)


def test_no_request_that_the_document_suggests_breaks_the_server(
    start: StartServer, shared_folder: Path, tmp_path: Path
) -> None:
    stores = ("--histories", str(shared_folder / "log.parquet"), "--events", str(tmp_path / "events.sqlite"))
    server = start(shared_folder / "model", *stores, token="sesame")
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{server.port}/openapi.json"]
    limits = ["--phases", "examples,coverage,fuzzing", "--max-examples", "10", "--seed", "7", "--no-shrink"]
    quiet = ["--checks", ",".join(CHECKS), "--no-color", "--warnings", "off", "--request-timeout", "30"]
    finished = subprocess.run([*command, *limits, *quiet], cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert finished.returncode == 0, finished.stdout[-6000:] + finished.stderr[-2000:]
    assert server.get("/healthz").status == 200
    assert not [line for line in server.log_lines() if line["level"] in ("error", "critical")]
