"""What learning and recommending cost on a cluster, computed from a few measured figures.

python -m benchmarks.cluster_cost results/cluster.json docs/scale.md

The first file is what `python -m benchmarks.cluster --json` printed. Writes the tables into the page: first what the
model says of the measured run itself, then what it says of larger ones, which nobody has measured.
"""

import argparse
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WIDTH = 64
NEGATIVES = 1_000
DENSE_WEIGHTS = 100_300
"""Weights of the encoder besides the table of items."""

POSITIONS_PER_WORKER = 1_600
POSITIONS_PER_USER = 100
BYTES_PER_SECOND = 0.7 * 10e9 / 8
"""Of a 10 Gbit/s network, of which 70 % are reached."""

ROUND_TRIP = 0.0002
LOOPBACK_BYTES_PER_SECOND = 1e9
"""What gloo moves between two processes of one machine; only the check uses it."""

DOLLARS_PER_CORE_HOUR = 0.05
ITEMS = (10**6, 10**7, 10**8, 10**9)
WORKERS = (1, 2, 8, 64)
BYTES_OF_A_NODE = (32e9, 128e9, 512e9)
USERS = 10**8
BYTES_PER_ITEM = 3 * 4 * WIDTH
"""Bytes of an item on a worker: its vector and two moments."""


@dataclass(frozen=True)
class Measured:
    """What the benchmark measured: of a step with one worker and with two, of a row, and of recommending."""

    cores: int
    items: int
    positions: int
    milliseconds: dict[str, float]
    bytes_per_step: float
    microseconds_per_row: float
    users_per_second: dict[str, float]
    recommend_efficiency: float

    @classmethod
    def read(cls, figures: dict[str, Any]) -> "Measured":
        """From the JSON of the benchmark."""
        return cls(
            cores=figures["settings"]["cores"],
            items=figures["settings"]["items"],
            positions=figures["settings"]["positions"],
            milliseconds=figures["milliseconds_per_step"],
            bytes_per_step=figures["bytes_per_step"],
            microseconds_per_row=figures["microseconds_per_row"],
            users_per_second=figures["users_per_second"],
            recommend_efficiency=figures["recommend_efficiency"],
        )

    @property
    def seconds_per_position(self) -> float:
        """Of computing gradients on one core: a step of one worker without the update of its rows."""
        rows = 2 * touched_rows(self.positions / 2, items=self.items)
        return (self.milliseconds["1"] / 1e3 - rows * self.microseconds_per_row / 1e6) / self.positions


@dataclass(frozen=True)
class Step:
    """A step of one worker among many: bytes that it sends, and seconds by what takes them."""

    sent: float
    computing: float
    updating: float
    network: float

    @property
    def seconds(self) -> float:
        """All together: nothing overlaps."""
        return self.computing + self.updating + self.network

    @property
    def network_share(self) -> float:
        """Of the step's time."""
        return self.network / self.seconds


def touched_rows(positions: float, *, items: int) -> float:
    """Distinct rows that a part of so many positions and its negatives touch, items being equally likely."""
    return -items * math.expm1((positions + NEGATIVES) * math.log1p(-1.0 / items))


def replicated(
    measured: Measured, *, items: int, workers: int, positions: float, bandwidth: float, round_trip: float
) -> Step:
    """Every worker has the whole table: all rows that any worker touched go to all, and all update all of them.

    positions: of each worker.
    """
    rows = touched_rows(positions, items=items)
    dense = 2 * (workers - 1) / workers * 4 * DENSE_WEIGHTS
    sent = dense + (workers - 1) * rows * (4 + 4 * WIDTH)
    hops = 2 * (workers - 1) + (workers - 1)
    return Step(
        sent=sent,
        computing=positions * measured.seconds_per_position,
        updating=workers * rows * measured.microseconds_per_row / 1e6,
        network=0.0 if workers == 1 else sent / bandwidth + hops * round_trip,
    )


def sharded(
    measured: Measured, *, items: int, workers: int, positions: float, bandwidth: float, round_trip: float
) -> Step:
    """Every worker has its share of the rows: a part asks their owners for its rows and sends them the gradients."""
    rows = touched_rows(positions, items=items)
    dense = 2 * (workers - 1) / workers * 4 * DENSE_WEIGHTS
    sent = dense + (workers - 1) / workers * rows * (8 + 4 * WIDTH + 4 * WIDTH)
    return Step(
        sent=sent,
        computing=positions * measured.seconds_per_position,
        updating=rows * measured.microseconds_per_row / 1e6,
        network=0.0 if workers == 1 else sent / bandwidth + (2 * (workers - 1) + 3) * round_trip,
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, all columns to the right but the first."""
    ruler = [":---", *["---:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ruler, *rows])


def check_table(measured: Measured) -> str:
    """The measured run beside what the model says of it; with a warning where it cannot show what it is meant to."""
    half = measured.positions / 2
    told = replicated(
        measured,
        items=measured.items,
        workers=2,
        positions=half,
        bandwidth=LOOPBACK_BYTES_PER_SECOND,
        round_trip=ROUND_TRIP,
    )
    alone, pair = measured.milliseconds["1"], measured.milliseconds["2"]
    efficiency = f"{measured.recommend_efficiency:.2f}"
    return _warning(measured) + table(
        ["a step of two workers", "measured", "computed"],
        [
            ["bytes that each sends", f"{measured.bytes_per_step:,.0f}", f"{told.sent:,.0f}"],
            ["milliseconds", f"{pair:.1f}", f"{1e3 * told.seconds:.1f}"],
            ["times faster than one worker", f"{alone / pair:.2f}", f"{alone / 1e3 / told.seconds:.2f}"],
            ["recommending: two actors over two threads", efficiency, "1.00"],
        ],
    )


def _warning(measured: Measured) -> str:
    if measured.cores >= 2:
        return ""
    return (
        f"**The committed run had {measured.cores} core.** Two workers cannot be faster than one there: its times, and "
        "all that is computed from them, only show that the benchmark runs. Repeat it on a quiet machine.\n\n"
    )


def learning_table(measured: Measured, *, kind: str) -> str:
    """Steps of 1,600 positions per worker, by items and workers. kind: of the tables, replicated or sharded."""
    model = {"replicated": replicated, "sharded": sharded}[kind]
    rows = []
    for items in ITEMS:
        for workers in WORKERS:
            step = model(
                measured,
                items=items,
                workers=workers,
                positions=POSITIONS_PER_WORKER,
                bandwidth=BYTES_PER_SECOND,
                round_trip=ROUND_TRIP,
            )
            held = BYTES_PER_ITEM * items / (workers if kind == "sharded" else 1)
            dollars = workers * step.seconds / 3600 * DOLLARS_PER_CORE_HOUR
            per_user = POSITIONS_PER_USER / (workers * POSITIONS_PER_WORKER) * dollars
            rows.append(
                [
                    f"10^{round(math.log10(items))}",
                    f"{workers}",
                    f"{held / 1e9:,.1f}",
                    f"{step.sent / 1e6:.2f}",
                    f"{1e3 * step.seconds:.0f}",
                    f"{step.network_share:.0%}",
                    f"{workers * POSITIONS_PER_WORKER / step.seconds / 1e3:,.0f}",
                    f"{1e6 * dollars:.2f}",
                    f"{1e6 * per_user:.2f}",
                ]
            )
    return table(
        [
            "items",
            "workers",
            "GB each",
            "MB sent each",
            "ms",
            "network",
            "thousand positions/s",
            "$ per million steps",
            "$ per million users and epoch",
        ],
        rows,
    )


def limits_table(measured: Measured) -> str:
    """Which limit comes first: how many items fit, and with how many workers one computes less than it updates and
    sends."""
    fits = [(memory, memory / BYTES_PER_ITEM) for memory in BYTES_OF_A_NODE]
    rows = [
        [f"memory of {memory / 1e9:.0f} GB for tables", f"{items / 1e6:,.0f} million items"] for memory, items in fits
    ]
    rows.append(["updating and sending rows takes more time than gradients", f"{busy_workers(measured)} workers"])
    return table(["limit", "reached at"], rows)


def busy_workers(measured: Measured) -> int:
    """From how many workers of one core on updating and sending rows takes each of them longer than computing."""
    workers = 2
    while True:
        step = replicated(
            measured,
            items=10**8,
            workers=workers,
            positions=POSITIONS_PER_WORKER,
            bandwidth=BYTES_PER_SECOND,
            round_trip=ROUND_TRIP,
        )
        if step.updating + step.network > step.computing:
            return workers
        workers += 1


def recommending_table(measured: Measured) -> str:
    """Hours and dollars of recommending to 10^8 users, by actors of one core."""
    rate = measured.users_per_second["two_actors"] / 2
    return table(
        ["actors", "hours for 10^8 users", "$ per million users"],
        [
            [
                f"{actors}",
                f"{USERS / (actors * rate) / 3600:,.1f}",
                f"{1e6 / rate / 3600 * DOLLARS_PER_CORE_HOUR:.3f}",
            ]
            for actors in WORKERS
        ],
    )


def tables(measured: Measured) -> dict[str, str]:
    """All tables of docs/scale.md by what they are of."""
    return {
        "check": check_table(measured),
        "replicated": learning_table(measured, kind="replicated"),
        "limits": limits_table(measured),
        "sharded": learning_table(measured, kind="sharded"),
        "recommending": recommending_table(measured),
    }


def with_tables(page: str, figures: dict[str, Any]) -> str:
    """A page with the tables in their places: between a comment with the name of the table and the next `end`."""
    for name, text in tables(Measured.read(figures)).items():
        before, is_there, rest = page.partition(f"<!-- {name} -->\n")
        _, is_closed, after = rest.partition("<!-- end -->")
        if not (is_there and is_closed):
            raise ValueError(f"Expected a place for the table {name!r} in the page, found none.")
        page = f"{before}{is_there}\n{text}\n\n{is_closed}{after}"
    return page


def main() -> None:
    """Write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", type=Path)
    parser.add_argument("page", type=Path)
    options = parser.parse_args()
    figures = json.loads(options.figures.read_text(encoding="utf-8"))
    options.page.write_text(with_tables(options.page.read_text(encoding="utf-8"), figures), encoding="utf-8")


if __name__ == "__main__":
    main()
