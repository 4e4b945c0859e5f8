"""How long a Parquet log takes to become dense sequences, and how much memory that needs.

    python -m benchmarks.ingest --rows 10000000 --json

The log is generated first; reading it is measured in a fresh process, so that generating does not count.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from beamtree.data.dataset import prepare_dataset
from beamtree.data.interactions import read_interactions

INTERACTIONS_PER_USER = 50
INTERACTIONS_PER_ITEM = 100
REPOSITORY = Path(__file__).resolve().parents[1]
SECONDS_PER_YEAR = 365 * 86_400


def generate_log(path: Path, *, rows: int, text_ids: bool, seed: int = 0) -> None:
    """Write a log of `rows` interactions in the order of time: users of all lengths, few items popular, most rare."""
    generator = np.random.default_rng(seed)
    num_users = max(10, rows // INTERACTIONS_PER_USER)
    num_items = max(10, rows // INTERACTIONS_PER_ITEM)
    users = (num_users * generator.random(rows) ** 2).astype(np.int64)
    items = (num_items * generator.random(rows) ** 3).astype(np.int64)
    times = np.sort(generator.integers(1_600_000_000, 1_600_000_000 + SECONDS_PER_YEAR, rows))
    frame = pl.DataFrame({"user_id": users * 7 + 1_000, "item_id": items * 13 + 5, "timestamp": times})
    if text_ids:
        frame = frame.with_columns(user_id=pl.format("user-{}", "user_id"), item_id=pl.format("item-{}", "item_id"))
    frame.write_parquet(path)


def measure_reading(path: Path) -> dict[str, float]:
    """Read a log in this process: rows, seconds, and the most memory that the process has held so far."""
    started = time.perf_counter()
    log = read_interactions(path)
    dataset = prepare_dataset(log)
    seconds = time.perf_counter() - started
    return {
        "rows": log.report.rows_read,
        "seconds": round(seconds, 2),
        "peak_rss_mb": round(peak_memory_mb(), 1),
        "users": len(dataset.users),
        "items": len(dataset.items),
        "interactions": len(dataset.sequences.items),
    }


def peak_memory_mb() -> float:
    """The most memory that this program has held, in MB (10^6 bytes).

    Linux hands a parent's peak on in getrusage, so the kernel's own figure for this program is preferred.
    """
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


def measure_ingest(*, rows: int, text_ids: bool = False) -> dict[str, float]:
    """Generate a log of `rows` interactions and measure reading it in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.parquet"
        generate_log(path, rows=rows, text_ids=text_ids)
        command = [sys.executable, "-m", "benchmarks.ingest", "--read", str(path)]
        answer = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout
    measured: dict[str, float] = json.loads(answer)
    return measured


def main() -> None:
    """Parse the command line and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="interactions to generate")
    parser.add_argument("--text-ids", action="store_true", help="texts as ids instead of integers")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--read", type=Path, help="only read this log, in this process, and print JSON")
    arguments = parser.parse_args()
    if arguments.read:
        print(json.dumps(measure_reading(arguments.read)))
        return
    measured = measure_ingest(rows=arguments.rows, text_ids=arguments.text_ids)
    if arguments.json:
        print(json.dumps(measured))
        return
    print(
        f"{measured['rows']:,} rows became sequences in {measured['seconds']} s, {measured['peak_rss_mb']:,} MB at most"
    )


if __name__ == "__main__":
    main()
