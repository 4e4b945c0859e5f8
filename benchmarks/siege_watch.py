"""Innocent clients of a besieged server, in a process of their own: right answers, how fast, how much memory it takes.

    python -m benchmarks.siege_watch PORT PID

A line on standard output says that all are at work. Lines on standard input change the phase ("alone", then "attack");
at its end the figures come as JSON. Two light clients ask over connections that they keep, `/healthz` is asked over a
new connection each time, and the memory of the server is read twenty times a second. Imports nothing but the standard
library, to leave the machine to the server.
"""

import http.client
import json
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

ALONE, ATTACK = "alone", "attack"
PATIENCE_SECONDS = 30.0
LIGHT_CLIENTS = 2
LIGHT_PAUSE_SECONDS = 0.01
HEALTH_PAUSE_SECONDS = 0.025
MEMORY_PAUSE_SECONDS = 0.05
LIGHT_REQUESTS = [json.dumps({"history": [number, number + 7, 3 * number], "k": 20}) for number in range(8)]


class Watch:
    """What the light clients, the health route and the memory of the server were like, by phase."""

    def __init__(self, port: int, pid: int) -> None:
        self._port = port
        self._status = Path(f"/proc/{pid}/status")
        self._stopped = threading.Event()
        self._right: dict[str, Any] = {}
        self.phase = ALONE
        self.light: dict[str, list[float]] = defaultdict(list)
        self.health: dict[str, list[float]] = defaultdict(list)
        self.memory: dict[str, list[float]] = defaultdict(list)
        self.failures: list[str] = []
        self.health_failures: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(number,)) for number in range(LIGHT_CLIENTS)]
        self._threads += [threading.Thread(target=target) for target in (self._ask_health, self._weigh)]
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Until clients and health have had an answer or a failure in this phase, and memory was read, if ever."""
        while not (self.light[self.phase] and self.health[self.phase]):
            time.sleep(LIGHT_PAUSE_SECONDS)
        while not self.memory[ALONE] and self._status.exists():
            time.sleep(LIGHT_PAUSE_SECONDS)

    def stop(self) -> None:
        """Let every request under way end."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _ask(self, number: int) -> None:
        connection = self._connect()
        while not self._stopped.wait(LIGHT_PAUSE_SECONDS):
            phase, began_at = self.phase, time.perf_counter()
            request = LIGHT_REQUESTS[number % len(LIGHT_REQUESTS)]
            number += LIGHT_CLIENTS
            try:
                connection.request("POST", "/v1/recommend", request, {"Content-Type": "application/json"})
                response = connection.getresponse()
                body = response.read()
                if response.status != 200:
                    raise ValueError(f"{response.status} {body[:200]!r}")
                items = [item["item_id"] for item in json.loads(body)["results"][0]["items"]]
                if items != self._right.setdefault(request, items):
                    raise ValueError("another answer than before")
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.failures.append(f"{type(error).__name__}: {error}")
                connection.close()
                connection = self._connect()
            self.light[phase].append(time.perf_counter() - began_at)
        connection.close()

    def _ask_health(self) -> None:
        while not self._stopped.wait(HEALTH_PAUSE_SECONDS):
            phase, began_at = self.phase, time.perf_counter()
            connection = self._connect()
            try:
                connection.request("GET", "/healthz")
                status = connection.getresponse().status
                if status != 200:
                    raise ValueError(str(status))
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.health_failures.append(f"{type(error).__name__}: {error}")
            connection.close()
            self.health[phase].append(time.perf_counter() - began_at)

    def _weigh(self) -> None:
        while not self._stopped.wait(MEMORY_PAUSE_SECONDS):
            try:
                lines = self._status.read_text().splitlines()
            except OSError:
                return
            self.memory[self.phase] += [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS")]

    def _connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE_SECONDS)


def summarise(watch: Watch) -> dict[str, Any]:
    """The figures of an attack. A failure counts as a failed innocent; its time counts like that of an answer."""
    before = max(watch.memory[ALONE], default=0.0)
    alone, light = (_percentile(watch.light[phase], 50) * 1000 for phase in (ALONE, ATTACK))
    return {
        "innocent_asked": sum(map(len, watch.light.values())),
        "innocent_failed": len(watch.failures),
        "first_failures": watch.failures[:3],
        "light_alone_ms": round(alone, 2),
        "light_ms": round(light, 2),
        "light_over_alone": round(light / alone, 2),
        "light_p99_ms": round(_percentile(watch.light[ATTACK], 99) * 1000, 1),
        "health_p99_ms": round(_percentile(watch.health[ATTACK], 99) * 1000, 1),
        "health_failed": len(watch.health_failures),
        "memory_growth_mb": round(max(watch.memory[ATTACK], default=before) - before, 1),
    }


def _percentile(values: list[float], percent: int) -> float:
    """The value that so many percent of the values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * percent // 100)]


def main() -> None:
    """Watch until standard input ends, then print the figures."""
    watch = Watch(int(sys.argv[1]), int(sys.argv[2]))
    watch.wait()
    print("watching", flush=True)
    for line in sys.stdin:
        watch.phase = line.strip()
    watch.wait()
    watch.stop()
    print(json.dumps(summarise(watch)))


if __name__ == "__main__":
    main()
