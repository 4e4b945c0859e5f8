"""Another process that holds a lock until it is killed."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from beamtree.training.exclusive import exclusive
with exclusive(Path(sys.argv[1]), on_wait=sys.exit, should_stop=lambda: True):
    print("inside", flush=True)
    sys.stdin.read()
"""


@contextmanager
def lock_holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that is inside with this path; killed at the end."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOLD, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "inside\n"
            yield process
        finally:
            process.kill()
