"""Events of ever new users: what the server remembers of them in memory must stay small."""

import threading
from pathlib import Path

from benchmarks.siege_harness import Figures, besieged, connect, post

USERS = 200_000
EVENTS_A_CALL = 1000
CONNECTIONS = 4
FIRST_USERS = 64


def attack(model: Path, folder: Path, *, seconds: float) -> Figures:
    """Two hundred thousand users with one event each, as fast as they are taken; `seconds` plays no part.

    users_forgotten: of the first users, those whose history the server no longer knows.
    """
    del seconds
    refused: list[int] = []

    def add_events(port: int, first: int) -> None:
        connection = connect(port)
        for user in range(first, USERS, CONNECTIONS * EVENTS_A_CALL):
            events = [{"user_id": user + number, "item_id": number} for number in range(EVENTS_A_CALL)]
            status, _ = post(connection, "/v1/events", {"events": events})
            if status != 200:
                refused.append(status)
        connection.close()

    with besieged(model, "--events", str(folder / "events.sqlite"), log=folder / "log") as (server, figures):
        threads = [
            threading.Thread(target=add_events, args=(server.port, number * EVENTS_A_CALL))
            for number in range(CONNECTIONS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        connection = connect(server.port)
        _, answer = post(connection, "/v1/recommend", {"requests": [{"user_id": user} for user in range(FIRST_USERS)]})
        connection.close()
    return figures | {
        "users": USERS,
        "calls_refused": len(refused),
        "users_forgotten": sum(not result["user_known"] for result in answer["results"]),
    }
