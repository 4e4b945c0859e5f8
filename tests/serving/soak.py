"""A real server under load for as long as you like, while the world around it breaks in turn.

    python -m tests.serving.soak --seconds 600

Clients ask for recommendations and post events, each event under a key of its own, which they send again until it is
confirmed. Meanwhile, in rounds: a new model is saved over the served one, another process locks the events, the disk is
full, the file of events is moved away and put back. After rounds 1, 2, 4, 8, ... the server is killed, so that each one
lives twice as long as the one before, and what it leaks has time to add up. Ends with code 1 unless

events_lost        confirmed events that are not in the file are 0
events_doubled     events that are there twice are 0
failures           answers that are neither a result nor a 503 are 0
servers_died       ends of a server that nobody asked for are 0
memory_growth_mb   what a server grew by between its first and its last look is within --max-growth-mb
"""

import argparse
import json
import resource
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any

from tests.serving.models import save_model
from tests.serving.server import DEADLINE, Answer, Server, wait_until

CLIENTS = 4
ITEMS = 200
FULL_DISK_BYTES = 16_384
BETWEEN_ATTEMPTS = 0.02
EVENTS_BETWEEN_FAULTS = 100


@dataclass
class Soak:
    """One soak: a server that is replaced when it is killed, its files, and what the clients saw."""

    folder: Path
    server: Server = field(init=False)
    refusals: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    kills: int = 0
    servers_died: int = 0
    memory_growth_mb: float = 0.0
    is_over: bool = False
    _rounds: int = 0
    _first_memory_mb: float = 0.0

    def __post_init__(self) -> None:
        save_model(self.folder / "model", ITEMS, parts=("attention", "memory"))
        self.clients = [Client(self, number) for number in range(CLIENTS)]
        self._start()

    @property
    def events(self) -> Path:
        """The file of events."""
        return self.folder / "events.sqlite"

    @property
    def confirmed(self) -> int:
        """How many events were confirmed so far."""
        return sum(len(client.confirmed) for client in self.clients)

    def run(self, *, seconds: float) -> dict[str, Any]:
        """Go through all faults, again and again until the time is over; the figures."""
        faults = [self._new_model, self._foreign_lock, self._full_disk, self._moved_file]
        end = time.monotonic() + seconds
        for client in self.clients:
            client.start()
        try:
            while not self._rounds or time.monotonic() < end:
                for fault in faults:
                    self._let_events_pass()
                    fault()
                self._rounds += 1
                self._let_events_pass()
                if is_killed_after(self._rounds):
                    self._kill()
                    self._let_events_pass()
        finally:
            self.is_over = True
            for client in self.clients:
                client.join(DEADLINE)
        self._look_at_memory()
        self.servers_died += self.server.stop() != 0
        return self._figures()

    def _figures(self) -> dict[str, Any]:
        with sqlite3.connect(self.events) as connection:
            stored = Counter(connection.execute("SELECT user, item FROM events").fetchall())
        connection.close()
        confirmed = {(client.number, event) for client in self.clients for event in client.confirmed}
        return {
            "rounds": self._rounds,
            "kills": self.kills,
            "events_confirmed": len(confirmed),
            "events_lost": len(confirmed - stored.keys()),
            "events_doubled": sum(count > 1 for count in stored.values()),
            "recommendations": sum(client.recommendations for client in self.clients),
            "refusals": dict(self.refusals),
            "failures": len(self.failures),
            "first_failures": self.failures[:3],
            "servers_died": self.servers_died,
            "memory_growth_mb": round(self.memory_growth_mb, 1),
        }

    def _start(self) -> None:
        options = ("--events", str(self.events), "--timeout", "1", "--watch-seconds", "0.2", "--no-access-log")
        self.server = Server(self.folder / "model", *options, log=self.folder / "server.log")
        self._first_memory_mb = 0.0

    def _let_events_pass(self) -> None:
        """Until some more events are confirmed by a server that is alive, and look at its memory."""
        enough = self.confirmed + EVENTS_BETWEEN_FAULTS
        wait_until(lambda: self.confirmed >= enough or self.server.process.poll() is not None, what="confirmed events")
        if self.server.process.poll() is not None:
            self.servers_died += 1
            self.server.join()
            self._start()
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        status = Path(f"/proc/{self.server.process.pid}/status").read_text(encoding="ascii")
        now = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024
        self._first_memory_mb = self._first_memory_mb or now
        self.memory_growth_mb = max(self.memory_growth_mb, now - self._first_memory_mb)

    def _new_model(self) -> None:
        before = self._model_version()
        save_model(self.folder / "model", ITEMS, seed=self._rounds + 1, parts=("attention", "memory"))
        wait_until(lambda: self._model_version() != before, what="the new model")

    def _model_version(self) -> str:
        return str(self.server.get("/readyz").json["model_version"])

    def _foreign_lock(self) -> None:
        foreign = sqlite3.connect(self.events, timeout=DEADLINE, isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        self._wait_for_refusal("timed_out")
        foreign.execute("ROLLBACK")
        foreign.close()

    def _full_disk(self) -> None:
        process, kind = self.server.process.pid, resource.RLIMIT_FSIZE
        _, hard = resource.prlimit(process, kind)
        resource.prlimit(process, kind, (FULL_DISK_BYTES, hard))
        self._wait_for_refusal("store_failed")
        resource.prlimit(process, kind, (hard, hard))

    def _moved_file(self) -> None:
        aside = self.folder / "aside"
        aside.mkdir(exist_ok=True)
        for part in self.folder.glob("events.sqlite*"):
            part.rename(aside / part.name)
        self._wait_for_refusal("store_moved")
        for part in aside.iterdir():
            part.rename(self.folder / part.name)

    def _kill(self) -> None:
        self.server.kill()
        self.kills += 1
        self._start()

    def _wait_for_refusal(self, code: str) -> None:
        before = self.refusals[code]
        wait_until(lambda: self.refusals[code] > before, what=f"a refusal because of {code}")


class Client(threading.Thread):
    """Posts events 0, 1, 2, ... of one user, each until it is confirmed, and asks for recommendations in between."""

    def __init__(self, soak: Soak, number: int) -> None:
        super().__init__(daemon=True)
        self.number = number
        self.confirmed: list[int] = []
        self.recommendations = 0
        self._soak = soak

    def run(self) -> None:
        event = 0
        while not self._soak.is_over:
            if self._post(event):
                self.confirmed.append(event)
                event += 1
            self._ask(event)

    def _post(self, event: int) -> bool:
        body = {"events": [{"user_id": self.number, "item_id": event}], "unknown": "ignore"}
        key = {"Idempotency-Key": f"{self.number}-{event}"}
        return self._call(lambda server: server.post("/v1/events", body, **key))

    def _ask(self, event: int) -> None:
        where = [{"column": "category", "one_of": ["Drama", "War"]}, {"column": "year", "at_least": 1950 + event % 30}]
        body = {"user_id": self.number, "k": 5, "allow": {"where": where}, "explain": event % 10 == 0}
        self.recommendations += self._call(lambda server: server.post("/v1/recommend", body))

    def _call(self, call: Callable[[Server], Answer]) -> bool:
        """Whether there was a result; a server that is just being replaced is no failure."""
        server = self._soak.server
        try:
            answer = call(server)
        except (OSError, HTTPException):
            time.sleep(BETWEEN_ATTEMPTS)
            return False
        if answer.status == 503:
            self._soak.refusals[answer.code] += 1
            time.sleep(BETWEEN_ATTEMPTS)
        elif answer.status != 200:
            self._soak.failures.append(f"{answer.status} {answer.body[:200]!r}")
        return answer.status == 200


def is_killed_after(rounds: int) -> bool:
    """Whether the server is killed after so many rounds: after 1, 2, 4, 8, ..."""
    return rounds.bit_count() == 1


def has_held(figures: dict[str, Any], *, max_growth_mb: float) -> bool:
    """Whether nothing was lost, doubled, broken or out of bounds."""
    broken = ("events_lost", "events_doubled", "failures", "servers_died")
    return not any(figures[name] for name in broken) and figures["memory_growth_mb"] <= max_growth_mb


def main() -> None:
    """Parse the command line, soak, print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long; one round of faults is the least")
    parser.add_argument("--max-growth-mb", type=float, default=100.0, help="what a server may grow by")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = Soak(Path(folder)).run(seconds=arguments.seconds)
    held = has_held(figures, max_growth_mb=arguments.max_growth_mb)
    sys.stdout.write(json.dumps(figures | {"held": held}, indent=2) + "\n")
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
