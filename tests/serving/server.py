"""A real server in a process of its own, started through the command line, and a small client for it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN = "from beamtree.cli.main import run; run()"
REPOSITORY = Path(__file__).resolve().parents[2]
DEADLINE = 60.0


@dataclass(frozen=True)
class Answer:
    """What came back: status, headers with names in lower case, and the body."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a refusal."""
        return str(self.json["error"]["code"])


class Server:
    """`beamtree serve MODEL ...` on a free port of 127.0.0.1; its log goes to a file."""

    def __init__(self, model: Path, *options: str, log: Path, token: str = "") -> None:
        self.log = log
        environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "BEAMTREE_ADMIN_TOKEN": token}
        with log.open("ab") as stream:
            self.process = subprocess.Popen(
                [sys.executable, "-c", RUN, "serve", str(model), "--port", "0", *options],
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env=environment,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found is None:
            self.kill()
            raise RuntimeError(f"the server did not start: {' '.join(log.read_text().split())}")
        self.port = int(found.group(1))

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE)

    def get(self, path: str, **headers: str) -> Answer:
        return self.call("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, **headers: str) -> Answer:
        return self.call("POST", path, body=json.dumps(body).encode(), headers=headers)

    def call(
        self, method: str, path: str, *, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        connection = self.connect()
        try:
            return ask(connection, method, path, body=body, headers=headers)
        finally:
            connection.close()

    def recommend(self, **request: Any) -> dict[str, Any]:
        """The single result of a request that must succeed."""
        answer = self.post("/v1/recommend", request)
        assert answer.status == 200, answer.body
        [result] = answer.json["results"]
        return dict(result)

    def metric(self, line_start: str) -> float:
        """The value of the metric whose line starts so."""
        for line in self.get("/metrics").body.decode().splitlines():
            if line.startswith(line_start):
                return float(line.rpartition(" ")[2])
        return 0.0

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.read_text().splitlines()]

    def stop(self) -> int:
        """Ask the server to stop and wait until it has."""
        self.process.send_signal(signal.SIGTERM)
        return self.join()

    def kill(self) -> None:
        self.process.kill()
        self.join()

    def join(self) -> int:
        code = self.process.wait(DEADLINE)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    *,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    """One request over a connection that may be used again."""
    sent = {"Content-Type": "application/json"} if body is not None else {}
    connection.request(method, path, body=body, headers=sent | (headers or {}))
    response = connection.getresponse()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


def wait_until(holds: Callable[[], bool], *, what: str) -> None:
    """Look again and again until something holds; a generous deadline turns waiting for ever into a failure."""
    give_up_at = time.monotonic() + DEADLINE
    while not holds():
        assert time.monotonic() < give_up_at, f"waited {DEADLINE:g} s in vain for: {what}"
        time.sleep(0.01)
